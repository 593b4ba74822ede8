"""The commands of a page, run as they are written against an installation that is up."""

import re
import subprocess
from pathlib import Path

from computeplatform.launch import BASE_DIR
from tests.journeys.installation import Installation


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page of the repository in one language."""
    text = (BASE_DIR / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def run_commands(installation: Installation, page: str, *, where: Path) -> str:
    """Run all of the page's commands in one shell, in the directory ``where``; returns what they wrote.

    The only differences: where this installation listens and keeps its credentials.
    """
    script = "\n".join(blocks(page, "sh"))
    for written, here in (
        ("http://127.0.0.1:8000", installation.base_url),
        (".local/credentials.json", str(installation.credentials_file)),
    ):
        assert written in script
        script = script.replace(written, here)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, check=False, timeout=60, cwd=where
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
