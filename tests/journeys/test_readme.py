"""The README's commands, run as they are written against an installation that is up."""

import re
import subprocess

import pytest

from computeplatform.launch import BASE_DIR
from tests.journeys.installation import Installation

pytestmark = pytest.mark.slow

README = (BASE_DIR / "README.md").read_text()


def test_the_first_reservation(installation: Installation):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL))
    # The only differences: where this installation listens and keeps its credentials.
    for written, here in (
        ("http://127.0.0.1:8000", installation.base_url),
        (".local/credentials.json", str(installation.credentials_file)),
    ):
        assert written in script
        script = script.replace(written, here)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    states = re.findall(r'"state":"([a-z]+)"', done.stdout)
    assert (states[0], states[-2:]) == ("placed", ["active", "released"])
    assert '"code":"QUOTA_EXCEEDED"' in done.stdout
    assert '"details":{"' in done.stdout


def test_what_it_says_is_there():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (BASE_DIR / link).exists(), link
    makefile = (BASE_DIR / "Makefile").read_text()
    for verb in set(re.findall(r"`make ([a-z-]+)`", README)):
        assert re.search(rf"^{verb}:", makefile, flags=re.MULTILINE), verb
