"""Links from a page to files of the repository that are not on the site lead to GitHub.

In the Markdown they stay relative, so that they work on GitHub and in a clone.
"""

import posixpath
import re
from pathlib import Path

from sphinx.application import Sphinx

REPOSITORY = "https://github.com/fedcommons/fedcommons"


def outside(app: Sphinx, docname: str, source: list[str]) -> None:
    docs = Path(app.srcdir)
    here = posixpath.join("docs", posixpath.dirname(docname))

    def link(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        path = posixpath.normpath(posixpath.join(here, target))
        file = docs.parent / path
        if not file.exists() or (path.startswith("docs/") and file.is_file()):
            return match[0]
        kind = "tree" if file.is_dir() else "blob"
        return f"]({REPOSITORY}/{kind}/main/{path}{anchor})"

    source[0] = re.sub(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)", link, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", outside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
