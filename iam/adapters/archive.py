"""Files of exported batches: written once, completely and durably."""

import hashlib
import os
from pathlib import Path


def keep(path: Path, content: bytes) -> str:
    """Have the content on the disk under this name; returns its SHA-256.

    A file that is there already is left if it is the same. One at a time: nobody else may be writing under this name.
    Raises FileExistsError for another one, and OSError.
    """
    if path.exists():
        if path.read_bytes() != content:
            raise FileExistsError(f"{path} is there already, with something else in it")
    else:
        # Under its name it is complete, whenever the machine stops.
        draft = path.with_name(path.name + ".part")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return hashlib.sha256(content).hexdigest()
