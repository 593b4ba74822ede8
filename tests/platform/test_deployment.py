"""The image and the Compose file: valid, complete, and without a secret in the open."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from django.conf import settings

BASE_DIR = Path(__file__).resolve().parents[2]
ROLES = ("web", "worker", "beat")


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((BASE_DIR / "docker-compose.yml").read_text())


def test_the_compose_file_follows_the_specification():
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        "docker-compose.yml",
    ]
    done = subprocess.run(command, cwd=BASE_DIR, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_role_is_there_and_waits_for_the_migration(compose):
    assert set(compose["services"]) == {"migrate", "web", "worker", "beat", "postgres", "redis"}
    for role in ROLES:
        waits_for = compose["services"][role]["depends_on"]
        assert waits_for["migrate"] == {"condition": "service_completed_successfully"}
        assert waits_for["postgres"] == waits_for["redis"] == {"condition": "service_healthy"}


def test_every_service_has_a_health_check_or_says_that_it_has_none(compose):
    without = [name for name, service in compose["services"].items() if "healthcheck" not in service]
    assert without == ["migrate"]  # it ends


def test_secrets_come_from_files(compose):
    declared = set(compose["secrets"])
    for name, service in compose["services"].items():
        environment = service.get("environment", {})
        for variable in ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "POSTGRES_PASSWORD"):
            assert variable not in environment, name
        files = {value for key, value in environment.items() if key.endswith("_FILE") and value.startswith("/")}
        assert files <= {f"/run/secrets/{secret}" for secret in service.get("secrets", [])}
        assert set(service.get("secrets", [])) <= declared


def test_our_containers_may_do_as_little_as_possible(compose):
    for role in (*ROLES, "migrate"):
        service = compose["services"][role]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_the_workers_read_every_queue(compose):
    words = compose["services"]["worker"]["command"]
    assert f"--queues={','.join(settings.QUEUES)}" in words


def test_the_image_holds_every_app_and_what_it_copies_is_there():
    lines = (BASE_DIR / "Dockerfile").read_text().splitlines()
    copied = {line.split()[1] for line in lines if line.startswith("COPY") and "--from" not in line}
    ours = {app for app in settings.INSTALLED_APPS if (BASE_DIR / app).is_dir()}
    assert ours <= copied
    allowed = {line[1:] for line in (BASE_DIR / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert copied == allowed
    assert all((BASE_DIR / path).exists() for path in copied)
    assert any(line.startswith("USER ") and line != "USER root" for line in lines)
