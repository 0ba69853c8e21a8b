"""The folder of a store into which inputs are unpacked that cannot be read where they are."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

SPOOL = "spool"  # the folder's name in a store
UNPACKED = ".rows"  # how the names of unpacked files end


def unpack(name: Path, parts: Iterable[bytes]) -> Path:
    """Write the parts to the file NAME-DIGEST.rows unless it exists; its path.

    Only this user may read it. It is written whole or not at all, and the digest in its name tells
    whether it was damaged later (`SiteData.check_unpacked`). Other unpacked files are removed.
    """
    for path in name.parent.glob(f"{name.name}-*{UNPACKED}"):
        return path
    name.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in [*name.parent.glob(f"*{UNPACKED}"), *name.parent.glob("*.part")]:
        old.unlink(missing_ok=True)
    descriptor, part_name = tempfile.mkstemp(suffix=".part", dir=name.parent)
    whole = hashlib.sha256()
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                whole.update(part)
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        return Path(part_name).replace(name.with_name(f"{name.name}-{whole.hexdigest()}{UNPACKED}"))
    finally:
        Path(part_name).unlink(missing_ok=True)
