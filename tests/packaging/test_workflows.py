"""The workflows, templates and hooks are valid, and what they call exists."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
INPUTS = {  # the actions that are used, and those of their documented inputs that are
    "actions/checkout": set(),
    "actions/setup-python": {"python-version"},
    "actions/upload-artifact": {"name", "path", "if-no-files-found"},
}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def job(name: str) -> dict[str, Any]:
    return read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"][name]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_says_when_where_and_for_how_long(path):
    workflow = read(path)
    assert {"name", True, "permissions", "jobs"} <= set(workflow)  # YAML reads `on` as true
    for found in workflow["jobs"].values():
        assert {"runs-on", "timeout-minutes", "steps"} <= set(found)
        assert all(len({"run", "uses"} & set(step)) == 1 for step in found["steps"])


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_uses_known_actions_by_their_documented_inputs(path):
    for step in (step for step in steps(path) if "uses" in step):
        action, version = step["uses"].split("@")
        assert action in INPUTS
        assert re.fullmatch(r"v\d+", version)
        assert set(step.get("with", {})) <= INPUTS[action]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_runs_exists(path):
    for command in (step["run"] for step in steps(path) if "run" in step):
        assert set(re.findall(r"\bmake ([a-z]+)", command)) <= TARGETS
        for file in re.findall(
            r"(?:tests/\S+|constraints\.txt|requirements\.lock|\.ci/run)", command
        ):
            assert (ROOT / file).exists(), file
        for marker in re.findall(r"not ([a-z]+)", command):
            markers = PROJECT["tool"]["pytest"]["ini_options"]["markers"]
            assert any(m.startswith(f"{marker}:") for m in markers)


def test_every_supported_python_is_tried_on_every_supported_system():
    prefix = "Programming Language :: Python :: 3."
    classifiers = PROJECT["project"]["classifiers"]
    pythons = [c.removeprefix(prefix[:-2]) for c in classifiers if c.startswith(prefix)]
    matrix = job("systems")["strategy"]["matrix"]
    assert matrix["python"] == pythons
    assert set(matrix["os"]) == {"ubuntu-latest", "macos-latest"}


def test_everything_the_newest_and_the_lowest_versions_and_the_wheel_have_jobs():
    assert {"everything", "systems", "newest", "lowest", "wheel", "coverage"} <= set(
        read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    )
    assert any(step.get("run") == ".ci/run" for step in job("everything")["steps"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_have_what_a_form_needs(path):
    form = read(path)
    if path.name == "config.yml":
        assert all({"name", "url", "about"} == set(link) for link in form["contact_links"])
        return
    assert {"name", "description", "body"} <= set(form)
    for field in form["body"]:
        assert field["type"] in {"markdown", "textarea", "input", "dropdown", "checkboxes"}
        assert field["attributes"].get("value" if field["type"] == "markdown" else "label")


def test_hooks_before_a_commit_run_tools_of_the_development_environment():
    development = {re.split(r"[\[<>=]", r)[0] for r in PROJECT["dependency-groups"]["dev"]}
    assert "pre-commit" in development
    for repository in read(ROOT / ".pre-commit-config.yaml")["repos"]:
        assert repository["repo"] == "local"  # nothing is fetched
        for hook in repository["hooks"]:
            tool = hook["entry"].split()[0].removeprefix(".venv/bin/")
            assert tool in development
            assert hook["language"] == "system"
