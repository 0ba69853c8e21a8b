"""No block of code on a page is left to itself: each is run, or read as its reader will read it.

Pages that `test_pages` runs from top to bottom are run there; what needs a machine of its own is
run by the test that `RUN` names. Of the rest, commands are given to the real command lines, which
must accept them, without being carried out; settings and tables are read by what reads them; parts
of a Flower app meet the real signatures. What is no code stands in `SEEN`, with its first line.
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import typer.main
import yaml
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedcommons import delay_table, flower, registry, site_lines
from fedcommons.cli import commands
from fedcommons.federate.site.peers_file import read_peers
from fedcommons.federate.transport.site_client import SiteClient
from fedcommons.simulate import studies
from tests.docs.test_pages import BLOCK, DOCS, PAGES, ROOT

TESTS = ROOT / "tests"
DEPLOYED = "federate/deploy/test_deploy_page.py"
RUN = {  # (page, language): the test that runs such blocks
    ("README.md", "python"): "test_readme.py",
    ("docs/deploy.md", "sh"): DEPLOYED,
    ("docs/deploy.md", "ini"): "federate/deploy/test_units.py",
    ("docs/maintenance.md", "sh"): DEPLOYED,
    ("docs/extend.md", "python"): "test_extend.py",
    ("docs/studies.md", "python"): "test_extend.py",
    ("docs/studies/clock.md", "python"): "test_extend.py",
    ("docs/studies/data.md", "python"): "test_extend.py",
}
TORCH = "federate/transport/test_torch_models.py"
SEEN = {  # (page, first line): why it is no code
    ("README.md", "before training, once                           every round"): "a picture",
    ("docs/architecture.md", "examples ──partition──▶ owner of each ──privacy──▶ shareable? "
     "──sharing──▶ PLACEMENT"): "a picture",
    ("docs/architecture.md", "src/fedcommons/"): "a list of files, which test_readme.py reads",
    ("docs/architecture.md", "concepts  ◀──  tracking ◀── simulate, federate"): "a picture",
    ("docs/deploy.md", "site: hospital-a                                   server: "
     "federation.example.org"): "a picture",
}  # fmt: skip
FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2$", re.MULTILINE | re.DOTALL)
COMPOSE = yaml.safe_load((ROOT / "containers" / "compose.yaml").read_text())


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page, without the indentation that it has in a list."""

    page: Path
    line: int
    language: str
    code: str

    @property
    def place(self) -> str:
        return str(self.page.relative_to(ROOT))

    @property
    def first(self) -> tuple[str, str]:
        return self.place, self.code.splitlines()[0].strip()

    def __str__(self) -> str:
        return f"{self.place}:{self.line}"


def blocks() -> list[Block]:
    found = []
    for page in [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))]:
        text = page.read_text()
        for match in FENCE.finditer(text):
            code = re.sub(f"^{match[1]}", "", match[4], flags=re.MULTILINE)
            found.append(Block(page, text[: match.start()].count("\n") + 1, match[3].strip(), code))
        assert len(re.findall(r"^ *```", text, re.M)) == 2 * len(FENCE.findall(text)), page
    return found


BLOCKS = blocks()


def run_by(block: Block) -> str:
    """The test that runs this block, or what shows it otherwise; empty if nothing does."""
    if block.language == "{toctree}":
        return "docs/test_pages.py"
    if block.language == "{code-cell} python":
        return "docs/test_site.py"  # the build executes notebooks
    if block.page in PAGES:
        return "docs/test_pages.py" if BLOCK.fullmatch(fenced(block)) else ""
    if block.place == "docs/federation/app.md" and "class Adapted" in block.code:
        return TORCH
    return RUN.get((block.place, block.language), "")


def fenced(block: Block) -> str:
    return f"```{block.language}\n{block.code}```"


# Commands


def commands_in(code: str) -> Iterator[list[str]]:
    """The words of every command of a shell's code, without variables and redirections."""
    code = re.sub(r"<<'(\w+)'\n.*?^\1$", "", code, flags=re.MULTILINE | re.DOTALL)
    for inside in re.findall(r"\$\(([^()]*)\)", code):
        yield from commands_in(inside)
    code = re.sub(r"\$\([^()]*\)", "1", code.replace("\\\n", " "))
    for line in code.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if set(word) <= set("();|&"):
                if words:
                    yield without_settings(words)
                words = []
            else:
                words.append(word)


def without_settings(words: list[str]) -> list[str]:
    if words[0] == "set":
        return words
    while re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    while any(word in (">", ">>", "<") for word in words):
        at = next(k for k, word in enumerate(words) if word in (">", ">>", "<"))
        words = words[:at] + words[at + 2 :]
    return words


def accepts(app: typer.Typer, words: list[str]) -> None:
    """The command line takes these words: command, options, numbers of arguments and types."""
    command: Any = typer.main.get_command(app)
    path, words = words[0], words[1:]
    while hasattr(command, "commands"):
        assert words, f"{path} is no command"
        assert words[0] in command.commands, f"{path} {words[0]} is no command"
        path, command, words = f"{path} {words[0]}", command.commands[words[0]], words[1:]
    command.make_context(path, list(words))  # raises what a user would be told


def fedcommons(words: list[str]) -> None:
    accepts(commands.app, words)


def flower_cli(words: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Flower's own, of typer
        from flwr.cli.app import app
    accepts(app, words)


def pip(words: list[str]) -> None:
    assert words[1] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"fedcommons\[([\w,-]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


def make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {word for word in words[1:] if "=" not in word} <= set(targets)


def compose(words: list[str]) -> None:
    rest = [word for word in words if not word.startswith("-")]
    kind, rest = rest[3], rest[4:]
    if kind == "up":
        return
    assert kind in ("run", "exec")
    assert rest[0] in COMPOSE["services"]
    if rest[1:2] == ["fedcommons"]:
        fedcommons(rest[1:])
    elif rest[1:]:
        script = (ROOT / "containers" / "federation.sh").read_text()
        assert re.search(rf"^{rest[1]}\)", script, re.MULTILINE)


def docker(words: list[str]) -> None:
    """There is none where tests run: what it would be given is looked at."""
    stages = re.findall(r" AS (\w+)$", (ROOT / "containers" / "Dockerfile").read_text(), re.M)
    if words[1] == "compose":
        compose(words)
    elif words[1] == "build":
        assert words[words.index("--target") + 1] in stages
    else:
        entry = words.index("--entrypoint")
        fedcommons([words[entry + 1], *words[entry + 3 :]])


def python(words: list[str]) -> None:
    if words[1] != "-m":
        assert (ROOT / words[1]).is_file(), words[1]


def elsewhere(_: list[str]) -> None:
    """A program that everybody knows, and whose arguments are not ours."""


PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "fedcommons": fedcommons,
    "flwr": flower_cli,
    "pip": pip,
    "make": make,
    "docker": docker,
    "python": python,
    **dict.fromkeys(("cd", "git", ".venv/bin/pytest", ".venv/bin/pre-commit"), elsewhere),
}
OURS = re.compile(r"(experiments|docs|containers|tests|examples|benchmarks)/\S+\.\w+")


def check_sh(block: Block, _: Path) -> None:
    for words in commands_in(block.code):
        assert words[0] in PROGRAMS, f"a program that this test does not know: {words[0]}"
        PROGRAMS[words[0]](words)
        for word in words:
            if OURS.fullmatch(word):
                assert (ROOT / word).exists(), word


# Settings and tables


def write_examples(content: dict[str, Any], folder: Path) -> None:
    """The data file that a study names, with the columns that it names, of five sites."""
    reading, path = content.get("data", {}), folder / content["dataset"]
    columns = [reading.get("label", "y")] if path.suffix == ".csv" else []
    columns = columns[0] if columns and isinstance(columns[0], list) else columns
    columns += [reading[key] for key in ("site_column", "strata_column") if key in reading]
    kinds = [5 if column == reading.get("site_column") else 2 for column in columns]
    if path.suffix == ".csv":
        lines = [",".join(["age", *columns])]
        lines += [",".join([str(k % 7), *(str(k % n) for n in kinds)]) for k in range(99)]
        path.write_text("\n".join(lines) + "\n")
    elif path.suffix == ".npz":
        np.savez(path, x=np.arange(4000.0).reshape(2000, 2), y=np.arange(2000) % 10)


def check_toml(block: Block, folder: Path) -> None:
    content = tomllib.loads(block.code)
    path = folder / "page.toml"
    if "peers" in content:
        path.write_text(block.code.replace("64 hexadecimal digits", 64 * "a"))
        assert set(read_peers(path).keys) == set(content["peers"])
    elif "project" in content:
        [(group, parts)] = content["project"]["entry-points"].items()
        kind = group.removeprefix("fedcommons.")
        assert kind in (registry.__doc__ or "")
        assert all(registry.IMPORT_PATH.fullmatch(part) for part in parts.values())
    else:
        before = "".join(
            f'{key} = "{default}"\n'
            for key, default in (("name", "page"), ("dataset", "mnist"))
            if key not in content
        )
        after = "" if {"grid", "figure"} & set(content) else '[[grid]]\npartition = "site"\n'
        path.write_text(f"{before}{block.code}{after}")
        write_examples(tomllib.loads(path.read_text()), folder)
        if not block.code.startswith('name = "extended"'):  # its parts are the page's own
            assert studies.load(path).curves


def check_table(block: Block, folder: Path) -> None:
    path = folder / "page.csv"
    path.write_text(block.code)
    read = delay_table.read if block.code.startswith("site,examples,") else site_lines.read
    read(path)


def check_python(block: Block, _: Path) -> None:
    """Parts of a Flower app: what they call takes what they give, and the functions run."""
    names: dict[str, Any] = {
        name: mock.create_autospec(getattr(flower, name))
        for name in ("share", "attach", "coded", "evaluated")
    }
    names["attach"].return_value = names["site"] = mock.create_autospec(SiteClient, instance=True)
    names |= {
        "app": ClientApp(),
        "grid": mock.Mock(),
        "context": mock.MagicMock(),
        "CodedSum": mock.create_autospec(flower.CodedSum),
        "load_data": lambda *_: ([], None),
        "load_held_out": lambda _: ([0.0], [1]),
        "consented": lambda x: True,
        "Message": mock.create_autospec(Message),
        "MetricRecord": MetricRecord,
        "RecordDict": RecordDict,
    }
    code = block.code.replace(" = ...\n", " = 0.5\n")
    exec(code, names)  # noqa: S102, our own
    for defined in ast.walk(ast.parse(code)):
        if isinstance(defined, ast.FunctionDef):
            names[defined.name](mock.Mock(), names["context"])


CHECKS = {"sh": check_sh, "toml": check_toml, "": check_table, "python": check_python}


def is_read_here(block: Block) -> bool:
    return not run_by(block) and block.first not in SEEN


def test_every_block_is_run_or_read_or_said_to_be_no_code():
    nobodys = [
        str(block)
        for block in BLOCKS
        if is_read_here(block)
        and (block.language not in CHECKS or (not block.language and "," not in block.first[1]))
    ]
    assert nobodys == [], "run them, or say why they are no code: tests/docs/test_blocks.py"
    assert set(SEEN) <= {block.first for block in BLOCKS}, "no page has these any more"
    used = {(block.place, block.language) for block in BLOCKS}
    assert set(RUN) <= used, "no page has these any more"
    for test in {run_by(block) for block in BLOCKS} - {""}:
        assert (TESTS / test).is_file(), test


@pytest.mark.parametrize("page", sorted({b.place for b in BLOCKS if is_read_here(b)}))
def test_blocks_that_are_not_run_are_what_their_readers_accept(page, tmp_path):
    for block in BLOCKS:
        if block.place == page and is_read_here(block):
            try:
                CHECKS[block.language](block, tmp_path)
            except Exception as error:
                raise AssertionError(f"{block}: {error!r}\n{block.code}") from error
