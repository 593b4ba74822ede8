"""One installation for all journeys; each begins with one of everything running, and leaves nothing reserved."""

from collections.abc import Iterator

import pytest

from tests.journeys.installation import Installation, until


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Prepared and seeded once; the parts are started by whoever needs them."""
    installation = Installation(tmp_path_factory.mktemp("installation"))
    yield installation
    installation.end()


@pytest.fixture
def installation(installed: Installation) -> Iterator[Installation]:
    """Ready, with four free nodes; afterwards everything that holds anything is released, and the books are right."""
    installed.ready()
    until(lambda: free_nodes(installed), lambda free: len(free) == 4)
    yield installed
    installed.ready()
    for tenant in ("acme", "globex"):
        admin = installed.caller(tenant, "admin")
        live = ["pending", "placed", "binding", "active"]
        for left in admin("reservations/list", scope="all", state=live, limit=200)["reservations"]:
            admin("reservations/release", reservationId=left["id"])
    installed.verify()


def free_nodes(installed: Installation) -> list[str]:
    """Nodes that are ready and hold nothing."""
    nodes = installed.platform()("nodes/list", poolId=installed.pool_id)["nodes"]
    return [node["id"] for node in nodes if node["state"] == "ready" and node["devices"] and not node["allocations"]]
