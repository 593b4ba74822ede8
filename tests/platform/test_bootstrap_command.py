"""manage.py bootstrap: the first administrator of a new installation."""

from io import StringIO

from django.core.management import call_command

from iam.models import Tenant
from tests.support.api import Api
from tests.support.world import World


def bootstrap() -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("bootstrap", stdout=out, stderr=err)
    return out.getvalue().strip(), err.getvalue().strip()


def test_the_first_call_prints_a_token_that_works(nobody: None):
    assert not Tenant.objects.exists()
    token, _ = bootstrap()
    assert Api(token, "platform").iam("session/whoami").data["principal"]["roles"] == ["tenant-admin", "fleet-admin"]


def test_another_call_makes_and_shows_nothing(world: World):
    out, err = bootstrap()
    assert out == ""
    assert "has an administrator already" in err
