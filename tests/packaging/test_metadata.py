"""What the package index would show of a release."""

from __future__ import annotations

import io
import re
import tomllib
from pathlib import Path

import pytest
from readme_renderer import markdown

import fedcommons
from tests.packaging.environments import ROOT, metadata

HOME = "https://github.com/fedcommons/fedcommons"
RAW = "https://raw.githubusercontent.com/fedcommons/fedcommons"


@pytest.fixture(scope="session")
def description(wheel: Path) -> str:
    return metadata(wheel).get_payload()


def targets(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)", text) + re.findall(r"(?:src|href)=\"([^\"]+)", text)


def test_no_link_is_relative(description: str) -> None:
    assert len(targets(description)) > 15
    assert [t for t in targets(description) if not t.startswith("https://")] == []


def test_links_into_the_project_lead_to_files_of_this_release(description: str) -> None:
    release = f"v{fedcommons.__version__}"
    ours = [t for t in targets(description) if t.startswith((f"{HOME}/blob", RAW))]
    assert ours
    for target in ours:
        path = re.sub(rf"^({HOME}/blob|{RAW})/{re.escape(release)}/", "", target)
        assert (ROOT / path).exists(), target


def test_pictures_are_files_and_not_pages(description: str) -> None:
    pictures = [t for t in targets(description) if t.endswith((".png", ".svg"))]
    assert pictures
    assert all(picture.startswith(RAW) for picture in pictures)


def test_the_description_can_be_rendered(description: str) -> None:
    warnings = io.StringIO()
    page = markdown.render(description, stream=warnings)
    assert warnings.getvalue() == ""
    assert "<table>" in page
    assert "<img" in page


def test_the_index_is_told_where_the_project_lives_and_what_it_runs_on(wheel: Path) -> None:
    found = metadata(wheel)
    urls = dict(entry.split(", ") for entry in found.get_all("Project-URL", []))
    assert urls["Homepage"] == HOME
    assert {"Documentation", "Changelog", "Issues"} <= set(urls)
    systems = [c for c in found.get_all("Classifier", []) if c.startswith("Operating System")]
    assert systems == ["Operating System :: MacOS", "Operating System :: POSIX :: Linux"]
    assert found["Description-Content-Type"] == "text/markdown"


def test_the_version_is_the_same_everywhere(wheel: Path) -> None:
    version = fedcommons.__version__
    assert metadata(wheel)["Version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## \[{re.escape(version)}\] - ", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_supported_pythons_are_classifiers_without_a_gap(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    prefix = "Programming Language :: Python :: 3."
    classifiers = metadata(wheel).get_all("Classifier", [])
    minors = sorted(int(c.removeprefix(prefix)) for c in classifiers if c.startswith(prefix))
    assert f"3.{minors[0]}" == oldest
    assert minors == list(range(minors[0], minors[-1] + 1))
