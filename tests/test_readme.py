"""What the README and the documents say is true."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def test_the_library_example_runs_as_shown_and_prints_what_is_shown():
    [example] = blocks(README, "python")
    shown = re.findall(r"^print\(.*?\)\s*# (.*)$", example, flags=re.MULTILINE)
    result = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, check=True
    )
    assert shown
    assert result.stdout.splitlines() == shown


def test_the_two_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    commands = {c for block in blocks(README, "sh") for c in re.findall(r"make (\w+)", block)}
    assert {"reproduce", "test"} <= commands
    assert commands <= targets
    assert "make test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\((?!http)([^)#]+)", document.read_text()):
        if not target.startswith("api/"):  # `make docs` writes it
            assert (document.parent / target).exists(), target


def test_architecture_names_every_module():
    text = (ROOT / "docs" / "architecture.md").read_text()
    source = ROOT / "src" / "fedcommons"
    for path in source.iterdir():
        if path.name.startswith("_") or path.name == "py.typed":
            continue
        name = f"{path.name}/" if path.is_dir() else path.name
        assert name in text, name


def test_names_in_the_notation_exist():
    import fedcommons

    text = (ROOT / "docs" / "notation.md").read_text()
    names = re.findall(r"`((?:[a-z_0-9]+\.)+[A-Za-z_0-9]+)`", text)
    assert len(names) > 20
    for name in names:
        value = fedcommons
        for part in name.split("."):
            if part == "Placement" or hasattr(value, part):
                value = getattr(value, part)
            else:
                assert part in getattr(value, "__dataclass_fields__", {}), name


def test_deviations_cited_in_the_code_exist():
    text = (ROOT / "docs" / "deviations.md").read_text()
    numbers = {int(n) for n in re.findall(r"^## (\d+)\.", text, flags=re.MULTILINE)}
    cited = {
        int(n)
        for folder in ("src", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for n in re.findall(r"docs/deviations\.md, (\d+)", path.read_text())
    }
    assert cited
    assert cited <= numbers
