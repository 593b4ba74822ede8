"""One installation for all that burns; it ends with this package, for it would cost the others time."""

from collections.abc import Iterator

import pytest
from pytest_django import DjangoDbBlocker

from computeplatform.servers import owned
from tests.fire.installation import BurningInstallation, burning_servers
from tests.journeys.installation import until


@pytest.fixture(scope="package")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BurningInstallation]:
    """Prepared and seeded once."""
    folder = tmp_path_factory.mktemp("fire")
    for one in (folder, *folder.parents[:2]):
        one.chmod(one.stat().st_mode | 0o011)  # PostgreSQL may run as nobody
    with owned(folder) as state_dir, burning_servers(state_dir) as servers:
        installation = BurningInstallation(state_dir, *servers)
        yield installation
        installation.end()


@pytest.fixture
def fire(installed: BurningInstallation, django_db_blocker: DjangoDbBlocker) -> Iterator[BurningInstallation]:
    """Each test runs the parts that it wants. Afterwards no draft is left open, and the books are right."""
    yield installed
    until(lambda: installed.open_drafts() == 0)
    assert installed.violations(django_db_blocker) == []
