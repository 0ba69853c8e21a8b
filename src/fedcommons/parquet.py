"""What a Parquet file holds beside features."""

from __future__ import annotations

import json
import re
from typing import Any

PANDAS_INDEX = re.compile(r"__index_level_[0-9]+__")


def index_columns(schema: Any) -> list[str]:
    """The columns that pandas wrote as the index of its rows."""
    try:
        written = list(json.loads((schema.metadata or {})[b"pandas"])["index_columns"])
    except (KeyError, TypeError, ValueError):  # not by pandas
        written = []
    return [name for name in schema.names if PANDAS_INDEX.fullmatch(name) or name in written]
