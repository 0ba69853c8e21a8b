"""What docs/privacy.md says is shown by tests that exist, and its rules are those of the code."""

import ast
import re
from pathlib import Path

import pytest

from fedcommons.federate.site.policy import Policy

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / "docs" / "privacy.md").read_text()
CITED = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
OUTCOMES = ["prevented", "detected", "not prevented"]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def rows_of_threats() -> list[list[str]]:
    """The rows of every table of attacks: what is done, then one cell for each outcome."""
    found, inside = [], False
    for line in PAGE.splitlines():
        if not line.startswith("|"):
            inside = False
        elif cells(line)[1:] == OUTCOMES:
            inside = True
        elif inside and not set(line) <= set("|-"):
            found.append(cells(line))
    return found


@pytest.mark.parametrize("path", sorted({path for path, _ in CITED}))
def test_every_test_that_is_cited_exists(path):
    tree = ast.parse((TESTS / path).read_text())
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {name for of, name in CITED if of == path} <= functions


def test_every_citation_is_read_by_these_tests():
    assert PAGE.count("::") == len(CITED) > 100


def test_every_outcome_of_an_attack_is_shown_or_said_to_have_no_test():
    rows = rows_of_threats()
    assert len(rows) > 50
    for row in rows:
        assert len(row) == 4, row[0]
        assert any(row[1:]), row[0]
        for cell in filter(None, row[1:]):
            shown = "::" in cell or "no test" in cell or "the same test" in cell
            assert shown, (row[0], cell)


def test_the_rules_of_a_policy_are_those_of_the_code():
    default = {True: "true", False: "false", (): "any"}
    for name, value in Policy().listed.items():
        said = default[value] if isinstance(value, bool | tuple) else str(value)
        assert f"\n| `{name}` | {said} |" in PAGE, name


def test_links_within_the_page_lead_somewhere():
    headings = re.findall(r"^#+ (.*)$", PAGE, flags=re.MULTILINE)
    anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= anchors
