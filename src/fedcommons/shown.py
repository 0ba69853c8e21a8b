"""Text that may come from others, made safe to show: on a terminal, in a log, in a page.

A name, an error or a setting may hold anything: codes that move the cursor, line breaks that forge
another line, marks that turn the direction of writing, HTML. Whoever shows text passes it through
here: errors and loggers of fedcommons do so by themselves, the command line in `cli/screen.py`,
pages in `figures/markup.py`, pictures in `figures/style.py`.
"""

from __future__ import annotations

import html as _html
import logging
import re
import unicodedata

HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")  # control, format, surrogate, unknown, breaks


def plain(text: object) -> str:
    """Text on one line in which every character can be seen: others are written as escapes.

    It can be applied again without any change.
    """
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in HIDDEN else c for c in str(text))


def html(text: object) -> str:
    """Text as it stands between tags, or in quotes in one."""
    return _html.escape(plain(text), quote=True)


def cell(text: object) -> str:
    """Text as it stands in a cell of a table; a spreadsheet does not take it for a formula."""
    safe = plain(text)
    first = unicodedata.normalize("NFKC", safe[:1])  # some take wide forms for the same signs
    return f"'{safe}" if first in ("=", "+", "-", "@") else safe


def without_folders(text: object) -> str:
    """Text in which files of this machine are named without the folders that they are in."""
    return re.sub(r"(?<![\w./:])/(?:[^\s/'\"]+/)+([^\s/'\"]+)", r"\1", str(text))


class _OneLine(logging.Filter):
    """Makes a record's message safe before any handler sees it."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = plain(record.getMessage()), None
        return True


def logger(name: str) -> logging.Logger:
    """The logger of this name, whose messages are safe to show."""
    found = logging.getLogger(name)
    if not any(isinstance(one, _OneLine) for one in found.filters):
        found.addFilter(_OneLine())
    return found


__all__ = ["cell", "html", "logger", "plain", "without_folders"]


def __dir__() -> list[str]:
    return __all__
