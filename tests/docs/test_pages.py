"""Pages that are read from top to bottom are true: every block on them is run, in order.

A block of `toml` or `python` that begins with a comment with a file's name is written to that file.
Other `python` prints what the comments behind its `print(...)` say, `sh` runs in the page's own
folder, and every line of a block of `text` was printed by the block before it, wherever that broke
lines; its numbers may differ by a hundredth, as on another machine. What `pip install` does, the
tests of the wheel show.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("concepts", "how-to")
PAGES = [DOCS / "tutorial.md"]
PAGES += sorted(path for folder in FOLDERS for path in (DOCS / folder).glob("*.md"))
ENV = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "OPENBLAS_NUM_THREADS": "1",
    "COLUMNS": "200",
}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(command: list[str], folder: Path) -> str:
    """What a command printed, all of it."""
    env = {**ENV, "FLWR_HOME": str(folder / ".flwr")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"
    return done.stdout


def execute(language: str, code: str, folder: Path) -> str:
    """Run a block, or write the file that it names: what it printed."""
    if named := re.match(r"# (\S+\.(?:py|toml))\n", code):
        path = folder / named[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code.removeprefix(named[0]))
        return ""
    if language == "sh":
        if code.startswith("pip install "):
            return ""
        return run(["bash", "-euo", "pipefail", "-c", code], folder)
    assert language == "python", f"a block of {language} that nothing runs"
    printed = run([sys.executable, "-c", code], folder)
    shown = re.findall(r"^print\(.*\)  # (.*)$", code, flags=re.MULTILINE)
    if shown:
        assert printed.splitlines() == shown
    return printed


def words(text: str) -> list[str | float]:
    """A text's words, wherever its lines end; those that are numbers with decimals as numbers."""
    found = re.findall(r"\d+\.\d+|[^\s\d]+|\d+", text)
    return [float(word) if re.fullmatch(r"\d+\.\d+", word) else word for word in found]


def alike(shown: list[str | float], printed: list[str | float]) -> bool:
    """Whether the words that were printed begin like those that are shown."""
    return all(
        abs(a - b) < 0.011 if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in zip(shown, printed, strict=False)
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_what_a_page_shows_is_so(page, tmp_path):
    printed = ""
    for language, code in BLOCK.findall(page.read_text()):
        if language == "text":
            found = words(printed)
            for line in code.splitlines():
                shown = words(line)
                starts = range(len(found) - len(shown) + 1)
                assert any(alike(shown, found[k:]) for k in starts), f"{line}\n{printed}"
        else:
            printed = execute(language, code, tmp_path)


def test_every_page_is_in_the_contents():
    """As the site's build asks, which not everybody runs: the lists are those of index.md."""
    listed = set()
    for folder in (DOCS, DOCS / "decisions"):
        for _, lists in re.findall(
            r"^(```+)\{toctree\}\n(.*?)^\1$", (folder / "index.md").read_text(), re.M | re.S
        ):
            for entry in re.findall(r"^(?!:)(\S+)$", lists, flags=re.MULTILINE):
                listed |= set(folder.glob(f"{entry}.md"))
    pages = {path for path in DOCS.rglob("*.md") if path != DOCS / "index.md"}
    assert pages - listed == set(), "name it in a toctree of docs/index.md"
