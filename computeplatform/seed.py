"""The data that `manage.py up` starts with: the platform, an operator, a pool of simulated nodes, two demo tenants.

Everything is found or made through the apps' operations, in one transaction; the two files with the secrets are
written after it. A secret that was made but not written (a crash in between), or that no longer works, is made anew.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from django.contrib.auth import authenticate as sign_in
from django.db import transaction

from computeplatform.api.calls import authenticate_port, system_actor
from computeplatform.clock import compute_now
from computeplatform.errors import Unauthenticated
from fleet.contracts import Policy
from fleet.operations.nodes import register_node
from fleet.operations.pools import create_pool, offer_pool
from fleet.queries import list_nodes, list_pools, offer_to
from iam.contracts import FLEET_ADMIN, PLATFORM, RESERVER, TENANT_ADMIN, UNSCOPED, PrincipalInfo, Subject
from iam.operations.bootstrap import ensure_operator, ensure_platform
from iam.operations.keys import create_key
from iam.operations.principals import NODE_SCOPES, create_principal
from iam.operations.tenants import create_tenant
from iam.queries.credentials import subject_of
from iam.queries.principals import principal_page, tenant_exists

Kind = Literal["demo", "none"]
T = TypeVar("T")

CREDENTIALS = "credentials.json"
NODES = "nodes.json"

SEEDER = system_actor("seed")
OPERATOR = "operator"
POOL = "h100"
GPU_MODEL = "h100-sxm-80g"
TENANT_ROOT = "/srv/tenants"
# Twice what the four nodes of a plain `up` have: a single tenant can see both a full pool and a full quota.
OFFERED_GPUS = 64
DEMO_TENANTS = {"acme": "Acme", "globex": "Globex"}
# The people of a demo tenant: kind and roles.
PEOPLE: dict[str, tuple[str, list[str]]] = {
    "admin": ("user", [TENANT_ADMIN]),
    "user": ("user", [RESERVER]),
    "service": ("service", [RESERVER]),
}
GPUS_PER_NODE = 8
GPU_MEMORY_MIB = 81_920
HOST = {"vcpu": 128, "memoryMiB": 1_048_576, "hugepages1Gi": 64}


def seed(*, state_dir: Path, kind: Kind, nodes: int, base_url: str) -> None:
    """Make what is missing and write ``credentials.json`` and ``nodes.json`` (mode 0600) into the state directory.

    ``kind`` none: no tenant but the platform's. Repeated: the data stays, and so does every secret that works; ``nodes``
    beyond those that are there are registered; another ``base_url`` is all that changes in the credentials. A directory
    that was seeded as demo keeps its tenants.
    """
    stored = _read(state_dir / CREDENTIALS, {})
    with transaction.atomic():
        now = compute_now()
        ensure_platform(now=now)
        platform = {"tenantId": PLATFORM, "admin": _token(stored, ["platform", "admin"], *_ADMIN, now=now)}
        operator = {"username": OPERATOR, "password": _password(stored, now=now)}
        pool_id = _pool(now=now)
        wanted = DEMO_TENANTS if kind == "demo" else {}
        tenants = {name: _tenant(stored, name, title, pool_id, now=now) for name, title in wanted.items()}
        simulated = _nodes(_read(state_dir / NODES, []), nodes, pool_id, now=now)
    kept = stored.get("tenants", {}) | tenants
    _write(state_dir / NODES, simulated)
    credentials = {
        "baseUrl": base_url,
        "platform": platform,
        "tenants": kept,
        "pool": {"id": pool_id},
        "operator": operator,
    }
    _write(state_dir / CREDENTIALS, credentials)


# --- People -------------------------------------------------------------------------------------------------------

_ADMIN = (PLATFORM, "user", "admin", [TENANT_ADMIN, FLEET_ADMIN])


def _tenant(stored: Any, tenant_id: str, title: str, pool_id: str, *, now: int) -> dict[str, str]:
    """The tokens of a demo tenant's people; the tenant, its people and its offer are made where they are missing."""
    if not tenant_exists(tenant_id):
        create_tenant(tenant_id=tenant_id, name=title, by=SEEDER, now=now)
    if offer_to(pool_id=pool_id, tenant_id=tenant_id) is None:
        offer_pool(
            pool_id=pool_id,
            to_tenant_id=tenant_id,
            resources={"gpu": OFFERED_GPUS},
            budget_check=None,
            by=SEEDER,
            now=now,
        )
    return {
        name: _token(stored, ["tenants", tenant_id, name], tenant_id, kind, name, roles, now=now)
        for name, (kind, roles) in PEOPLE.items()
    }


def _token(stored: Any, place: list[str], tenant_id: str, kind: str, name: str, roles: list[str], *, now: int) -> str:
    """The token stored at this place if it is still one of the tenant's, else a new one for the person of this name."""
    token = _at(stored, place)
    found = _subject(token, now=now)
    if found and found.tenant_id == tenant_id:
        return token
    person = _person(tenant_id, kind, name) or create_principal(
        tenant_id=tenant_id, kind=kind, name=name, roles=roles, by=SEEDER, now=now
    )
    if person.status != "active":
        return token  # suspended by somebody: no key would work, and it is not ours to resume
    minted = create_key(tenant_id=tenant_id, principal_id=person.id, name="seed", scopes=UNSCOPED, by=SEEDER, now=now)
    return minted.token


def _person(tenant_id: str, kind: str, name: str) -> PrincipalInfo | None:
    """The oldest of this name: names are not unique, and ours was there first."""
    found = [person for person in _principals(tenant_id, kind) if person.name == name]
    return found[-1] if found else None


def _principals(tenant_id: str, kind: str) -> Iterator[PrincipalInfo]:
    """All of a kind, newest first."""
    return _every(
        lambda cursor: principal_page(
            tenant_id, kind=kind, status=None, role=None, group=None, limit=200, cursor=cursor
        )
    )


def _password(stored: Any, *, now: int) -> str:
    """The operator's password, who signs in to the admin with it.

    Only a password that does not work is set: setting it anew would end the operator's sessions at each start.
    """
    password = _at(stored, ["operator", "password"])
    if not (password and sign_in(username=OPERATOR, password=password)):
        password = password or secrets.token_urlsafe(18)
        roles = [TENANT_ADMIN, FLEET_ADMIN]
        person = _person(PLATFORM, "user", OPERATOR) or create_principal(
            tenant_id=PLATFORM, kind="user", name=OPERATOR, roles=roles, by=SEEDER, now=now
        )
        ensure_operator(username=OPERATOR, password=password, principal_id=person.id, by=SEEDER, now=now)
    return password


def _subject(token: str, *, now: int) -> Subject | None:
    """Who a token makes the caller; None if it does not work."""
    try:
        return subject_of(authenticate_port()(token, now=now, source_ip=None)) if token else None
    except Unauthenticated:
        return None


# --- The pool and its nodes ---------------------------------------------------------------------------------------


def _pool(*, now: int) -> str:
    """The platform's pool of this name, the oldest if there are several."""
    pools = _every(lambda cursor: list_pools(tenant_id=PLATFORM, limit=200, cursor=cursor))
    found = [pool.id for pool in pools if pool.name == POOL]
    if found:
        return found[-1]
    made = create_pool(
        tenant_id=PLATFORM,
        name=POOL,
        region="eu-north",
        gpu_model=GPU_MODEL,
        device_class="gpu",
        sharing="exclusive",
        profile="",
        policy=Policy(tenant_root=TENANT_ROOT),
        resources=None,
        by=SEEDER,
        now=now,
    )
    return made.id


def _nodes(stored: Any, count: int, pool_id: str, *, now: int) -> list[dict[str, Any]]:
    """What the simulator is given: ``sim-1`` to ``sim-<count>``, registered where they are missing, with their tokens.

    Nodes beyond ``count`` from an earlier start keep their entries out of the file and get a new key when they return.
    """
    tokens = {entry["nodeId"]: entry["token"] for entry in stored}
    there = {node.name: node.id for node in _every(lambda cursor: list_nodes(limit=200, cursor=cursor))}
    entries = []
    for name in (f"sim-{number}" for number in range(1, count + 1)):
        if name in there:
            node_id = there[name]
            token = _node_token(node_id, tokens.get(node_id, ""), now=now)
        else:
            node_id, token = register_node(
                name=name, pool_id=pool_id, positions=GPUS_PER_NODE, labels={}, by=SEEDER, now=now
            )
        if token:
            entries.append(_node_entry(node_id, name, token))
    return entries


def _node_entry(node_id: str, name: str, token: str) -> dict[str, Any]:
    hardware = {"gpus": GPUS_PER_NODE, "model": GPU_MODEL, "memoryMiB": GPU_MEMORY_MIB, "host": HOST}
    return {"nodeId": node_id, "token": token, "name": name, **hardware}


def _node_token(node_id: str, token: str, *, now: int) -> str:
    """The node's token if it works, else a new one for its service; empty if that is suspended."""
    found = _subject(token, now=now)
    if found and found.node_id == node_id:
        return token
    services = [p for p in _principals(PLATFORM, "service") if p.node_id == node_id and p.status == "active"]
    if not services:
        return ""
    minted = create_key(
        tenant_id=PLATFORM, principal_id=services[0].id, name="seed", scopes=NODE_SCOPES, by=SEEDER, now=now
    )
    return minted.token


def _every(page: Callable[[str | None], tuple[list[T], str | None]]) -> Iterator[T]:
    """The items of all pages."""
    cursor: str | None = None
    while True:
        items, cursor = page(cursor)
        yield from items
        if cursor is None:
            return


# --- Files --------------------------------------------------------------------------------------------------------


def _read(path: Path, default: Any) -> Any:
    """What the file holds, or the default where there is none."""
    return json.loads(path.read_text()) if path.exists() else default


def _at(stored: Mapping[str, Any], place: list[str]) -> str:
    """The text at this place of the stored credentials, or empty."""
    value: Any = stored
    for name in place:
        value = value.get(name, {})
    return value if isinstance(value, str) else ""


def _write(path: Path, content: Any) -> None:
    """Replace the file at once: whoever reads it, or a crash, sees the old content or the new."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
