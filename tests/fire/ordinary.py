"""Running things as somebody who is not root."""

import contextlib
import os
import pwd
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from computeplatform.launch import BASE_DIR


@dataclass(frozen=True)
class OrdinaryUser:
    """How a command is started as an ordinary user: what comes before its words, and arguments for ``Popen``."""

    prefix: tuple[str, ...] = ()
    popen: dict[str, Any] = field(default_factory=dict)

    def owns(self, folder: Path) -> Path:
        """Give a directory, and the way to it, to the user."""
        for one in (folder, *folder.parents[:2]):
            one.chmod(one.stat().st_mode | 0o011)
        if self.popen:
            os.chown(folder, self.popen["user"], self.popen["group"])
        return folder

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run([*self.prefix, *words], text=True, check=False, cwd=BASE_DIR, **self.popen, **more)


def ordinary_user() -> OrdinaryUser:
    """We ourselves, unless we are root: then ``nobody``, or where that one cannot reach the interpreter or the checkout
    (root's home is closed), root without its powers in a user namespace, where it has another number."""
    if os.geteuid() != 0:
        return OrdinaryUser()
    nobody = pwd.getpwnam("nobody")
    ways = [
        OrdinaryUser(popen={"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}),
        OrdinaryUser(prefix=("unshare", "-U", "--map-user=1000", "--map-group=1000")),
    ]
    for way in ways:
        with contextlib.suppress(OSError):
            if way.run(sys.executable, "-c", "import computeplatform.launch", capture_output=True).returncode == 0:
                return way
    raise AssertionError("neither nobody nor a user namespace can run this checkout")
