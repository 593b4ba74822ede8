"""Settings: production by default, secrets by file, no quiet fallback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from computeplatform import environment

BASE_DIR = Path(__file__).resolve().parents[2]


def manage(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """manage.py with nothing in its environment but these variables."""
    command = [sys.executable, "manage.py", *words]
    env = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, cwd=BASE_DIR, env=env, capture_output=True, text=True, check=False)


def test_check_deploy_is_clean_with_nothing_but_a_secret_key(tmp_path):
    key = tmp_path / "key"
    key.write_text("k3y" * 20 + "abcdefgh\n")
    done = manage("check", "--deploy", "--fail-level", "WARNING", SECRET_KEY_FILE=str(key), ALLOWED_HOSTS="example.org")
    assert done.returncode == 0, done.stderr
    assert "no issues (0 silenced)" in done.stdout


def test_check_deploy_fails_without_a_secret_key_and_over_plain_http():
    assert "security.W009" in manage("check", "--deploy", "--fail-level", "WARNING").stderr
    done = manage("check", "--deploy", "--fail-level", "WARNING", SECRET_KEY="k3y" * 20 + "abcdefgh", HTTPS_ONLY="off")
    assert done.returncode != 0
    assert "security.W008" in done.stderr


def test_without_a_database_url_the_first_connection_says_so():
    done = manage("migrate", SECRET_KEY="x")
    assert done.returncode != 0
    assert "DATABASE_URL-is-not-set" in done.stderr


def test_a_log_line_is_one_json_object_with_the_context():
    program = (
        "import django, logging, structlog; django.setup();"
        "structlog.contextvars.bind_contextvars(request_id='r1');"
        "structlog.get_logger('ours').info('said', amount=3); logging.getLogger('theirs').warning('also %s', 'said')"
    )
    variables = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "computeplatform.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=BASE_DIR, env=variables, capture_output=True, text=True, check=True
    )
    ours, theirs = [json.loads(line) for line in done.stderr.splitlines()]
    assert (ours["event"], ours["amount"], ours["request_id"], ours["level"]) == ("said", 3, "r1", "info")
    assert (theirs["event"], theirs["request_id"], theirs["logger"]) == ("also said", "r1", "theirs")


def test_a_value_may_come_from_a_file_and_loses_its_line_feed(monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("$not-a-reference\n")
    monkeypatch.setenv("SOME_VALUE", "ignored")
    monkeypatch.setenv("SOME_VALUE_FILE", str(tmp_path / "secret"))
    assert environment.text("SOME_VALUE") == "$not-a-reference"
    monkeypatch.setenv("SOME_VALUE_FILE", str(tmp_path / "absent"))
    with pytest.raises(ImproperlyConfigured, match="SOME_VALUE_FILE"):
        environment.text("SOME_VALUE")


@pytest.mark.parametrize(
    ("value", "meaning"), [("", True), ("on", True), ("TRUE", True), ("1", True), ("off", False), ("no", False)]
)
def test_a_flag_is_read_strictly(monkeypatch, value, meaning):
    monkeypatch.setenv("SOME_FLAG", value)
    assert environment.flag("SOME_FLAG", default=True) is meaning


def test_a_misspelt_flag_is_refused(monkeypatch):
    monkeypatch.setenv("SOME_FLAG", "yess")
    with pytest.raises(ImproperlyConfigured, match="SOME_FLAG"):
        environment.flag("SOME_FLAG", default=True)


@pytest.mark.parametrize(("path", "policy"), [("/api/x", "default-src 'none'"), ("/admin/", "'unsafe-eval'")])
def test_the_path_decides_the_content_security_policy(client, path, policy):
    assert policy in client.get(path).headers["Content-Security-Policy"]
