"""The pages about extending and about studies from Python are true: what they show is run."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet

from tests.test_readme import ROOT, blocks

EXTEND = (ROOT / "docs" / "extend.md").read_text()
STUDIES = "".join(
    page.read_text()
    for page in (ROOT / "docs" / "studies.md", *sorted((ROOT / "docs" / "studies").glob("*.md")))
)
FEDCOMMONS = str(Path(sys.executable).with_name("fedcommons"))


def test_the_parts_of_the_page_are_trained_and_drawn_as_it_says(tmp_path):
    parts = blocks(EXTEND, "python")
    assert all(part.startswith("# my_parts.py\n") for part in parts)
    (tmp_path / "my_parts.py").write_text("".join(parts))
    study, _ = blocks(EXTEND, "toml")
    (tmp_path / "extended.toml").write_text(study)
    [command] = blocks(EXTEND, "sh")
    assert command.split()[0] == "fedcommons"
    subprocess.run([FEDCOMMONS, *command.split()[1:], "--yes"], cwd=tmp_path, check=True)
    results = tmp_path / "results" / "extended"
    table = pyarrow.parquet.read_table(results / "curves.parquet")
    for field, name in (
        ("scheme", "my_parts:ring"),
        ("code", "my_parts:half_to_owner"),
        ("estimator", "my_parts:damped"),
        ("algorithm", "my_parts:pulled"),
    ):
        assert name in set(table[field].to_pylist())
    assert {"brier_mean", "accuracy_mean"} <= set(table.column_names)
    assert (
        "damped memory: what is remembered moves half way" in (results / "report.html").read_text()
    )


def test_the_study_in_python_runs_as_shown_and_prints_what_is_shown(tmp_path):
    examples = blocks(STUDIES, "python")
    assert len(examples) == 4
    for example in examples:
        shown = re.findall(r"^print\(.*?\)  # ([^:\n]*)", example, flags=re.MULTILINE)
        result = subprocess.run(
            [sys.executable, "-c", example],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert result.stdout.splitlines() == shown
