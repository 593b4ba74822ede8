"""Calls over HTTP against a whole installation of its own, measured by wrk."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.request import Request, urlopen

from computeplatform.demo.stage import Stage, own_stage
from computeplatform.launch import BASE_DIR, WEB_STOP, free_port
from computeplatform.servers import end_process, running_urls
from tests.bench.cpu import Meter, per_call
from tests.bench.listing import calls_with_hidden_rows
from tests.bench.loaded import NODES, LoadedPool, plain_commits
from tests.bench.samples import Samples
from tests.bench.statements import statements
from tests.bench.waiting import PARKED, ParkedCalls

ROUNDS = 3
SECONDS = 5
CLIENTS = (1, 16)
LIVE = (0, 1_000, 5_000)
SCRIPT = Path(__file__).with_name("wrk.lua")


def measure(live_counts: Sequence[int] = LIVE) -> Iterator[Samples]:
    """The server itself, a bare view, then creates, gets and lists with more and more live reservations."""
    if not shutil.which("wrk"):
        sys.exit("make bench needs wrk (Debian: apt-get install wrk).")
    with own_stage(BASE_DIR / ".local" / "bench", nodes=0) as stage:
        urls = running_urls(stage.state_dir)
        begun = time.perf_counter()
        pool = LoadedPool(urls["DATABASE_URL"], stage.platform.pool_id)
        pool.prepare_bare()
        print(f"set-up of {NODES} nodes: {time.perf_counter() - begun:.1f} s", file=sys.stderr)
        yield from _floor(stage, urls)
        counted = statements(urls["DATABASE_URL"], stage.state_dir, lambda: _create(stage))
        yield Samples("queries per create, 1 client", note=counted)
        for live in live_counts:
            pool.fill(live)
            for clients in CLIENTS:
                yield _rounds(f"create, {clients} clients, {live} live", stage, pool, clients, "reservations/create")
        yield _rounds("get, 1 clients", stage, pool, 1, "reservations/get")
        yield _while_creating("get, 1 clients, while 4 create", stage, pool)
        parked = ParkedCalls(stage, "res_bench2")
        yield _rounds(f"get, 1 clients, while {PARKED} wait", stage, pool, 1, "reservations/get")
        yield parked.answered()
        yield _rounds("list of 50, 1 clients", stage, pool, 1, "reservations/list")
        for call in calls_with_hidden_rows(stage, urls["DATABASE_URL"]):
            samples = Samples(f"{call.name}, 1 clients")
            for _ in range(ROUNDS):
                _add(samples, _wrk(f"{stage.base_url}/api/compute/reservations/list", call.token, call.body, 1))
            yield samples


def _floor(stage: Stage, urls: dict[str, str]) -> Iterator[Samples]:
    for clients in CLIENTS:
        samples = Samples(f"plain one-row commits, {clients} connections")
        for _ in range(ROUNDS):
            done = plain_commits(urls["DATABASE_URL"], clients=clients, seconds=2)
            samples.rates.append(done / 2)
        yield samples
    with _bare(stage, urls) as address:
        for clients in CLIENTS:
            samples = Samples(f"bare Django view, one row, {clients} clients")
            for _ in range(ROUNDS):
                _add(samples, _wrk(f"{address}/bare", "none", '{"idempotencyKey": "%s"}', clients))
            yield samples


@contextlib.contextmanager
def _bare(stage: Stage, urls: dict[str, str]) -> Iterator[str]:
    port = free_port(0)
    command = [str(Path(sys.executable).parent / "granian"), "--interface", "asgi", "--loop", "uvloop", "--no-ws"]
    command += [*WEB_STOP, "--log-level", "warning", "--port", str(port), "computeplatform.asgi:application"]
    settings = {"DJANGO_SETTINGS_MODULE": "tests.bench.bare_settings", "SECRET_KEY": "bench", "HTTPS_ONLY": "off"}
    process = subprocess.Popen(command, cwd=BASE_DIR, env=os.environ | urls | settings, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _until_there(f"{address}/nothing")
        yield address
    finally:
        end_process(process)


def _until_there(url: str) -> None:
    late = time.monotonic() + 30
    while time.monotonic() < late:
        try:
            urlopen(url).close()
        except OSError as error:
            if getattr(error, "code", None) == 404:
                return
            time.sleep(0.05)
    raise TimeoutError(url)


def _rounds(name: str, stage: Stage, pool: LoadedPool, clients: int, method: str) -> Samples:
    samples = Samples(name)
    meter = Meter(stage.state_dir)
    for _ in range(ROUNDS):
        pool.empty_of_calls()
        before = meter.used()
        result = _call(stage, method, clients)
        if result["calls"]:
            samples.note = f"CPU ms: {per_call(before, meter.used(), result['calls'])}"
        _add(samples, result)
    return samples


def _while_creating(name: str, stage: Stage, pool: LoadedPool) -> Samples:
    samples = Samples(name)
    for _ in range(ROUNDS):
        pool.empty_of_calls()
        creating = _start(*_addressed(stage, "reservations/create"), 4, SECONDS + 1)
        _add(samples, _call(stage, "reservations/get", 1))
        creating.communicate()
    return samples


def _call(stage: Stage, method: str, clients: int) -> dict[str, float]:
    return _wrk(*_addressed(stage, method), clients)


def _create(stage: Stage) -> None:
    url, token, body = _addressed(stage, "reservations/create")
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    urlopen(Request(url, (body % uuid.uuid4().hex).encode(), headers)).close()


def _addressed(stage: Stage, method: str) -> tuple[str, str, str]:
    """Address, token and body of a call; creates are for an hour, some of them later."""
    fields: dict[str, object] = {"tenantId": "platform"}
    if method == "reservations/create":
        fields |= {
            "poolId": stage.platform.pool_id,
            "devices": {"class": "gpu", "count": 1},
            "durationSeconds": 3600,
            "startsAt": int(time.time() * 1000) + 3_600_000,
            "idempotencyKey": "%s",
        }
    elif method == "reservations/get":
        fields["reservationId"] = "res_bench1"
    else:
        fields["scope"] = "all"
    return f"{stage.base_url}/api/compute/{method}", stage.platform.token, json.dumps(fields)


def _wrk(url: str, token: str, body: str, clients: int) -> dict[str, float]:
    return _result(_start(url, token, body, clients, SECONDS))


def _start(url: str, token: str, body: str, clients: int, seconds: int) -> subprocess.Popen[str]:
    base, _, path = url.partition("/api/") if "/api/" in url else url.rpartition("/")
    path = f"/api/{path}" if "/api/" in url else f"/{path}"
    options = ["--threads", "1", "--connections", str(clients), "--duration", f"{seconds}s", "--timeout", "30s"]
    command = ["wrk", *options, "--script", str(SCRIPT), base, "--", path, token, body, uuid.uuid4().hex[:8]]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str]) -> dict[str, float]:
    out, _ = process.communicate()
    line = next(line for line in out.splitlines() if line.startswith("RESULT "))
    return dict(json.loads(line.removeprefix("RESULT ")))


def _add(samples: Samples, result: dict[str, float]) -> None:
    samples.p50.append(result["p50"])
    samples.p99.append(result["p99"])
    samples.rates.append(result["calls"] / result["seconds"])
    if result["failed"]:
        samples.note += f" {result['failed']:.0f} of {result['calls']:.0f} failed"
