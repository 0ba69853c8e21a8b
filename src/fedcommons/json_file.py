"""JSON files: reading what others may have damaged or made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedcommons.errors import FedcommonsError

MOST_BYTES = 1 << 30


def read_json(path: Path, error: type[FedcommonsError]) -> Any:
    """What a file holds; whatever is wrong with it is raised as `error`, but that it is missing."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise error(f"{path} must have at most {MOST_BYTES} bytes, got more")
        return json.loads(content)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError, MemoryError) as cause:
        raise error(f"{path} cannot be read: {cause}") from None
