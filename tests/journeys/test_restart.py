"""Stop and start `manage.py up` in the middle of a story: it goes on."""

import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any, Self

import pytest

from computeplatform.launch import BASE_DIR
from tests.journeys.installation import STARTING_SECONDS, Caller, client, until

pytestmark = pytest.mark.slow


class Up:
    """`manage.py up` with servers of its own, as on a bare machine."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self._log = state_dir / "up.log"

    def __enter__(self) -> Self:
        command = [sys.executable, "manage.py", "up", "--port", "0", "--state-dir", str(self.state_dir)]
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.state_dir)}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(command, cwd=BASE_DIR, env=environment, stdout=log, stderr=log)
        until(lambda: "\nready " in self._log.read_text() or self._process.poll() is not None, seconds=STARTING_SECONDS)
        assert self._process.poll() is None, self._log.read_text()
        self.credentials: Any = json.loads((self.state_dir / "credentials.json").read_text())
        self._http = client(self.credentials["baseUrl"])
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(60) == 128 + signal.SIGINT

    def caller(self, tenant_id: str, name: str) -> Caller:
        return Caller(self._http, tenant_id, self.credentials["tenants"][tenant_id][name])


def nodes(count: int, pool_id: str) -> dict[str, Any]:
    asked = {"poolId": pool_id, "devices": {"class": "gpu", "count": 8}, "nodes": count, "binding": "node"}
    return asked | {"durationSeconds": 7200, "idempotencyKey": uuid.uuid4().hex}


@pytest.mark.clause("OPS-3", "everything stopped and started: the stored work goes on")
@pytest.mark.clause("CRE-3", "a replay after a restart")
def test_stopped_and_started_in_the_middle_it_goes_on(tmp_path):
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o011)  # PostgreSQL may run as nobody
    with Up(tmp_path) as up:
        first = up.credentials
        ann, gil, pool_id = up.caller("acme", "user"), up.caller("globex", "user"), first["pool"]["id"]
        asked, much, more = nodes(1, pool_id), nodes(2, pool_id), nodes(2, pool_id)
        training = ann("reservations/create", **asked)["reservation"]
        render = gil("reservations/create", **much)["reservation"]
        sweep = ann("reservations/create", **more)["reservation"]
        assert (training["state"], render["state"], sweep["state"]) == ("placed", "placed", "pending")
        before = ann.follow(training["id"], "active")
        gil.follow(render["id"], "active")

    with Up(tmp_path) as up:
        assert up.credentials | {"baseUrl": ""} == first | {"baseUrl": ""}
        ann, gil, admin = up.caller("acme", "user"), up.caller("globex", "user"), up.caller("acme", "admin")
        assert ann.get(training["id"]) == before
        assert ann("reservations/create", **asked)["reservation"] == before["reservation"]
        assert ann.state_of(sweep["id"]) == "pending"
        gil("reservations/release", reservationId=render["id"])
        ann.follow(sweep["id"], "active")
        ann("reservations/release", reservationId=training["id"])
        happened = {training["id"]: ["placed", "binding", "active", "released"]}
        happened[sweep["id"]] = ["pending", "placed", "binding", "active"]
        until(lambda: {one: admin.types_of(one) for one in happened}, lambda seen: seen == happened)
        numbers = [event["sequence"] for event in admin.events()]
        assert numbers == list(range(1, len(numbers) + 1))
