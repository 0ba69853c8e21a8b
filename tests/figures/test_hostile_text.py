"""What sites, studies and machines call themselves adds no element to a page, and no drawing."""

import json
from copy import deepcopy

import matplotlib.image
import pyarrow
import pytest

from fedcommons.errors import ResultsError
from fedcommons.figures import federation, style
from fedcommons.figures.markup import Markup, joined, markup, text
from tests.figures.test_report import copy as results
from tests.figures.test_report import finished, rewrite
from tests.hostile import HOSTILE, each_text, hidden, replaced, tags

RECORD = {
    "federation": "clinics",
    "sites": [{"site": "a", "identity": "ab", "examples": 4, "shareable": 2, "present": True}],
    "rounds": 1,
    "copies": 2,
    "examples": 10,
    "deliveries": 3,
    "settings": {"estimator": "memory"},
    "epoch": 1,
    "serial": 0,
    "versions": {"numpy": "2"},
}
ROUNDS = [
    {"round": k, "seconds": 1.5, "answered": 1, "sites": 1, "accuracy": 0.5 + k} for k in (0, 1)
]
ANSWERS = [
    {"round": 1, "site": "a", "answered": False, "outcome": "too late", "straggler_prob": 0.5}
]
EVERYTHING = {"record": RECORD, "rounds": ROUNDS, "answers": ANSWERS}
PLAIN = tags(federation.render(**EVERYTHING))

__all__ = ["finished", "results"]  # fixtures


@pytest.mark.parametrize(
    "path", [*each_text(EVERYTHING)], ids=lambda path: ".".join(map(str, path))
)
def test_no_field_of_a_federation_adds_an_element(path):
    """Either the page has the elements that it has anyway, or the field is refused for its type."""
    try:
        page = federation.render(**replaced(EVERYTHING, path, HOSTILE))
    except (TypeError, ValueError):
        return  # `write_page` says that the folder is damaged
    assert not hidden(page)
    assert set(tags(page)) <= set(PLAIN)


@pytest.mark.parametrize("field", ["federation", "copies", "examples", "deliveries", "rounds"])
def test_fields_of_the_header_are_escaped(field):
    page = federation.render({**RECORD, field: HOSTILE}, ROUNDS, ANSWERS)
    assert tags(page) == PLAIN
    assert "&lt;script&gt;" in page


@pytest.mark.parametrize("place", ["settings", "versions"])
def test_names_of_settings_are_escaped(place):
    page = federation.render({**RECORD, place: {HOSTILE: HOSTILE}}, ROUNDS, ANSWERS)
    assert not hidden(page)
    assert tags(page) == PLAIN


def test_names_of_metrics_are_escaped():
    rounds = [{HOSTILE if k == "accuracy" else k: v for k, v in row.items()} for row in ROUNDS]
    page = federation.render(RECORD, rounds, ANSWERS)
    assert not hidden(page)
    assert tags(page) == PLAIN


def test_a_folder_of_hostile_files_is_an_error_that_names_it(tmp_path):
    for content in ("[]", "{}", json.dumps({"format": "fedcommons.federation"}), "[" * 100_000):
        (tmp_path / "run.json").write_text(content)
        with pytest.raises(ResultsError, match=str(tmp_path)):
            federation.write_page(tmp_path)


def relabelled(table, labels):
    each = [label for label in labels for _ in range(len(table) // len(labels))]
    return table.set_column(table.schema.get_field_index("label"), "label", pyarrow.array(each))


def test_a_study_of_hostile_names_is_drawn_and_adds_no_element(results):
    from fedcommons.figures.report import write_report

    def page_with(change):
        record = results.record()
        change(record)
        (results.path / "run.json").write_text(json.dumps(record))
        lines = [line["label"] for figure in record["study"]["figures"] for line in figure["lines"]]
        rewrite(results, "curves.parquet", lambda table: relabelled(table, lines))
        reported = write_report(results)
        assert reported["lines"]
        return (results.path / "report.html").read_text()

    before = page_with(lambda record: record.update(commit="abc"))

    def rename(record):
        study = deepcopy(record["study"])
        study["name"] = study["dataset"] = HOSTILE
        for figure in study["figures"]:
            figure["title"] = HOSTILE
            for line in figure["lines"]:
                line["label"] += HOSTILE
        record |= {"study": study, "command": HOSTILE, "commit": HOSTILE, "digest": HOSTILE}
        record |= {"versions": {HOSTILE: HOSTILE}, "machine": {HOSTILE: HOSTILE}}

    after = page_with(rename)
    assert not hidden(after)
    assert tags(after) == tags(before)
    for picture in results.figures.glob("*.png"):
        assert matplotlib.image.imread(picture).size
    for picture in results.figures.glob("*.svg"):
        assert not hidden(picture.read_text(encoding="utf-8"))


def test_markup_is_what_was_made_as_markup():
    assert text("<b>") == "&lt;b&gt;"
    assert text(Markup("<b>")) == "<b>"
    assert markup("<i>$x</i>$y", x="<b>", y=Markup("<u>$x</u>")) == "<i>&lt;b&gt;</i><u>$x</u>"
    assert joined(["<", Markup("<br>")], " ") == "&lt; <br>"


def test_a_label_is_no_mathematics():
    assert style.words("a $x^$ b\n") == r"a \$x^\$ b\n"
