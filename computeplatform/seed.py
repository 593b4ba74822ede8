"""The data that `manage.py up` starts with: the platform, an operator, a pool of simulated nodes, two demo tenants.

Everything is found or made through the apps' operations, in one transaction; the two files with the secrets are
written after it. A secret that was made but not written (a crash in between), or that no longer works, is made anew.
"""

import json
import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
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
from iam.queries.principals import get_tenant, principal_page, tenant_exists

Kind = Literal["demo", "none"]
T = TypeVar("T")


@dataclass(frozen=True)
class Person:
    """Somebody that the seed makes in a tenant."""

    kind: str
    name: str
    roles: tuple[str, ...]


CREDENTIALS = "credentials.json"
NODES = "nodes.json"

SEEDER = system_actor("seed")
PLATFORM_ADMIN = Person("user", "admin", (TENANT_ADMIN, FLEET_ADMIN))
OPERATOR = Person("user", "operator", (TENANT_ADMIN, FLEET_ADMIN))
DEMO_TENANTS = {"acme": "Acme", "globex": "Globex"}
DEMO_PEOPLE = (
    Person("user", "admin", (TENANT_ADMIN,)),
    Person("user", "user", (RESERVER,)),
    Person("service", "service", (RESERVER,)),
)
POOL = "h100"
TENANT_ROOT = "/srv/tenants"
GPU_MODEL = "h100-sxm-80g"
GPU_MEMORY_MIB = 81_920
GPUS_PER_NODE = 8
HOST = {"vcpu": 128, "memoryMiB": 1_048_576, "hugepages1Gi": 64}
# Twice what the four nodes of a plain `up` have: one tenant alone can meet a full pool, and a full quota behind it.
OFFERED_GPUS = 64


def seed(*, state_dir: Path, kind: Kind, nodes: int, base_url: str) -> None:
    """Make what is missing and write ``credentials.json`` and ``nodes.json`` (mode 0600) into the state directory.

    ``kind`` none: no tenant but the platform's. Repeated: the data stays, and so does every secret that works; nodes
    that the count asks for and that are not there are registered; another ``base_url`` changes nothing else in the
    credentials. A directory that was seeded as demo keeps its tenants.
    """
    stored = _read(state_dir / CREDENTIALS, {})
    with transaction.atomic():
        now = compute_now()
        admin = ensure_platform(now=now).token or _token(
            _at(stored, "platform", "admin"), PLATFORM, PLATFORM_ADMIN, now
        )
        operator = {"username": OPERATOR.name, "password": _password(_at(stored, "operator", "password"), now)}
        pool_id = _pool(now)
        tenants = dict(stored.get("tenants", {}))
        if kind == "demo":
            tenants |= {name: _tenant(stored, name, pool_id, now) for name in DEMO_TENANTS}
        simulated = _nodes(_read(state_dir / NODES, []), nodes, pool_id, now)
    _write(state_dir / NODES, simulated)
    _write(
        state_dir / CREDENTIALS,
        {
            "baseUrl": base_url,
            "platform": {"tenantId": PLATFORM, "admin": admin},
            "tenants": tenants,
            "pool": {"id": pool_id},
            "operator": operator,
        },
    )


# --- People -----------------------------------------------------------------------------------------------------------


def _tenant(stored: Any, tenant_id: str, pool_id: str, now: int) -> dict[str, str]:
    """The tokens of a demo tenant's people; tenant, people and offer are made where they are missing."""
    if not tenant_exists(tenant_id):
        create_tenant(tenant_id=tenant_id, name=DEMO_TENANTS[tenant_id], by=SEEDER, now=now)
    if offer_to(pool_id=pool_id, tenant_id=tenant_id) is None:
        resources = {"gpu": OFFERED_GPUS}
        offer_pool(pool_id=pool_id, to_tenant_id=tenant_id, resources=resources, budget_check=None, by=SEEDER, now=now)
    return {
        person.name: _token(_at(stored, "tenants", tenant_id, person.name), tenant_id, person, now)
        for person in DEMO_PEOPLE
    }


def _token(token: str, tenant_id: str, person: Person, now: int) -> str:
    """This token if it is one of the tenant's that works, else a new one for the person."""
    subject = _subject(token, now)
    if subject and subject.tenant_id == tenant_id:
        return token
    found = _principal(tenant_id, person, now)
    if found.status != "active" or get_tenant(tenant_id).status != "active":
        return token  # suspended by somebody: no key would work, and it is not ours to resume them
    return create_key(
        tenant_id=tenant_id, principal_id=found.id, name="seed", scopes=UNSCOPED, by=SEEDER, now=now
    ).token


def _principal(tenant_id: str, person: Person, now: int) -> PrincipalInfo:
    """The tenant's oldest of this name (names are not unique, and ours was there first), else a new one."""
    found = [one for one in _principals(tenant_id, person.kind) if one.name == person.name]
    if found:
        return found[-1]
    return create_principal(
        tenant_id=tenant_id, kind=person.kind, name=person.name, roles=person.roles, by=SEEDER, now=now
    )


def _principals(tenant_id: str, kind: str) -> Iterator[PrincipalInfo]:
    """All of a kind, newest first."""
    everybody: dict[str, Any] = {"kind": kind, "status": None, "role": None, "group": None, "limit": 200}
    return _every(lambda cursor: principal_page(tenant_id, cursor=cursor, **everybody))


def _subject(token: str, now: int) -> Subject | None:
    """Whose token this is; None if it does not work."""
    try:
        return subject_of(authenticate_port()(token, now=now, source_ip=None)) if token else None
    except Unauthenticated:
        return None


def _password(password: str, now: int) -> str:
    """What the operator signs in to the admin with.

    Only one that does not work is set: to set it anew would end the operator's sessions at each start.
    """
    if not (password and sign_in(username=OPERATOR.name, password=password)):
        password = password or secrets.token_urlsafe(18)
        person = _principal(PLATFORM, OPERATOR, now)
        ensure_operator(username=OPERATOR.name, password=password, principal_id=person.id, by=SEEDER, now=now)
    return password


# --- The pool and its nodes -------------------------------------------------------------------------------------------


def _pool(now: int) -> str:
    """The platform's oldest pool of this name, else a new one that sets its owner no limits."""
    pools = _every(lambda cursor: list_pools(tenant_id=PLATFORM, limit=200, cursor=cursor))
    found = [pool.id for pool in pools if pool.name == POOL and pool.tenant_id == PLATFORM]
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


def _nodes(stored: Any, count: int, pool_id: str, now: int) -> list[dict[str, Any]]:
    """What the simulator is given: ``sim-1`` to ``sim-<count>`` with their tokens, registered where they are missing.

    Nodes that an earlier start had beyond the count stay in the list, at its end: the simulator runs the first ones.
    """
    names = [f"sim-{number}" for number in range(1, max(count, len(stored)) + 1)]
    there = {node.name: node.id for node in _every(lambda cursor: list_nodes(limit=200, cursor=cursor))}
    tokens = {entry["nodeId"]: entry["token"] for entry in stored if _speaks_for(entry["nodeId"], entry["token"], now)}
    lost = {there[name] for name in names if name in there} - tokens.keys()
    tokens |= _new_node_tokens(lost, now) if lost else {}
    for name in names:
        if name not in there:
            there[name], token = register_node(
                name=name, pool_id=pool_id, positions=GPUS_PER_NODE, labels={}, by=SEEDER, now=now
            )
            tokens[there[name]] = token
    hardware = {"gpus": GPUS_PER_NODE, "model": GPU_MODEL, "memoryMiB": GPU_MEMORY_MIB, "host": HOST}
    return [
        {"nodeId": there[name], "token": tokens[there[name]], "name": name, **hardware}
        for name in names
        if there[name] in tokens
    ]


def _speaks_for(node_id: str, token: str, now: int) -> bool:
    subject = _subject(token, now)
    return subject is not None and subject.node_id == node_id


def _new_node_tokens(node_ids: Collection[str], now: int) -> dict[str, str]:
    """New tokens by node. A node whose service was suspended gets none: somebody has put an end to it."""
    services = {one.node_id: one.id for one in _principals(PLATFORM, "service") if one.status == "active"}
    return {
        node_id: create_key(
            tenant_id=PLATFORM, principal_id=services[node_id], name="seed", scopes=NODE_SCOPES, by=SEEDER, now=now
        ).token
        for node_id in sorted(node_ids)
        if node_id in services
    }


def _every(page: Callable[[str | None], tuple[list[T], str | None]]) -> Iterator[T]:
    """The items of all pages."""
    cursor: str | None = None
    while True:
        items, cursor = page(cursor)
        yield from items
        if cursor is None:
            return


# --- Files ------------------------------------------------------------------------------------------------------------


def _read(path: Path, default: Any) -> Any:
    """What the file holds, or the default where there is none."""
    return json.loads(path.read_text()) if path.exists() else default


def _at(stored: Mapping[str, Any], *place: str) -> str:
    """The text at this place, or empty."""
    value: Any = stored
    for name in place:
        value = value.get(name, {})
    return value or ""


def _write(path: Path, content: Any) -> None:
    """Replace the file at once: a reader, or a crash, meets the old content or the new, and never a part of it."""
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(content, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.rename(path)
