"""A report is made of files that are whole and belong together, or not at all."""

import json
import shutil

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from fedcommons.errors import ResultsError
from fedcommons.figures.headline import headline
from fedcommons.figures.report import write_report
from fedcommons.simulate import findings, runner, studies, tables
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.ranking import Rank, Setting
from fedcommons.simulate.summary import Summary

STUDY = {
    "name": "small",
    "clients": 3,
    "class_size": 5,
    "rounds": 2,
    "runs": 3,
    "figure": [
        {
            "name": "one",
            "kind": "curves",
            "partition": "single-class",
            "p": [0.3, 0.6],
            "curves": [{"label": "no sharing"}, {"label": "shared", "c": 0.4, "d": 1}],
        }
    ],
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("report")
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    x = rng.random((30, 4)) + y[:, None]
    np.savez(path / "data.npz", x_train=x, y_train=y, x_test=x, y_test=y)
    study = studies.parse(STUDY, data=str(path / "data.npz"))
    folder = Folder(path / "results")
    with folder.opened(study):
        folder.begin(study, {"command": "x", "versions": {}, "machine": {}, "commit": None})
        runner.run_study(study, folder, workers=1)
        tables.build(study, folder, runner.study_data(study))
        folder.finish(study, seconds=1.0, fresh_runs=3)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    """The results again, to damage."""
    shutil.copytree(finished.path, tmp_path / "copy")
    return Folder(tmp_path / "copy")


def rewrite(folder, name, change):
    path = folder.path / name
    pyarrow.parquet.write_table(change(pyarrow.parquet.read_table(path)), path)


def record(folder, change):
    path = folder.path / "run.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def test_whole_results_make_a_report(copy):
    assert write_report(copy)["runs"] == 3
    assert (copy.path / "report.html").exists()


def test_a_report_does_without_what_was_not_recorded(copy):
    def forget(content):
        for key in ("command", "versions", "machine", "commit", "seconds", "invocations"):
            del content[key]

    record(copy, forget)
    assert write_report(copy)["runs"] == 3


@pytest.mark.parametrize("name", ["curves.parquet", "runs.parquet"])
@pytest.mark.parametrize(
    "change",
    [
        lambda table: pyarrow.table({"x": [1, 2]}),
        lambda table: table.drop_columns([table.column_names[-1]]),
        lambda table: table.drop_columns(["diverged"]),
        lambda table: table.slice(0, table.num_rows - 1),
        lambda table: table.slice(0, 0),
        lambda table: table.slice(1).append_column("x", table["diverged"].slice(1)),
        lambda table: table.take(np.arange(table.num_rows)[::-1]),
        lambda table: table.set_column(
            table.column_names.index("diverged"), "diverged", pyarrow.nulls(table.num_rows)
        ),
    ],
    ids=["other", "no last", "no diverged", "short", "empty", "wide", "turned", "null"],
)
def test_tables_that_do_not_belong_to_the_study_are_named(copy, name, change):
    rewrite(copy, name, change)
    with pytest.raises(ResultsError, match=name):
        write_report(copy)


def test_tables_of_different_runs_are_named(copy):
    rewrite(copy, "runs.parquet", lambda table: table.slice(0, 2 * table.num_rows // 3))
    with pytest.raises(ResultsError, match=r"runs.parquet must hold .* each of the 3 runs"):
        write_report(copy)


def first_figure(content):
    return content["study"]["figures"][0]


@pytest.mark.parametrize(
    "change",
    [
        lambda r: first_figure(r).update(kind="pie"),
        lambda r: first_figure(r).update(name="../../elsewhere"),
        lambda r: first_figure(r).update(name=3),
        lambda r: first_figure(r).update(title=3),
        lambda r: first_figure(r)["lines"][0].update(label=None),
        lambda r: first_figure(r)["lines"][0]["curve"].update(proportion=7),
        lambda r: r["study"].pop("name"),
        lambda r: r["study"].update(dataset={}),
        lambda r: r["study"].update(figures=3),
        lambda r: r["study"].update(rounds="many"),
        lambda r: r.update(study=[]),
        lambda r: r.update(seconds="long"),
        lambda r: r.update(versions="1.0"),
        lambda r: r.update(command=["a", "b"]),
        lambda r: r.update(invocations=3),
        lambda r: r.update(invocations=[3]),
        lambda r: r["invocations"][0].update(seconds="long"),
        lambda r: r.pop("digest"),
    ],
)
def test_a_record_that_cannot_be_is_named(copy, change):
    record(copy, change)
    with pytest.raises(ResultsError, match=r"run\.json"):
        write_report(copy)


def test_a_damaged_record_is_not_gone_on_from(copy, finished):
    study = finished.study()
    record(copy, lambda r: r.update(invocations=3))
    with pytest.raises(ResultsError, match=r"run\.json"), copy.opened(study):
        pass
    record(copy, lambda r: r.update(invocations=[], digest="other", study={}))
    with pytest.raises(ResultsError, match="another study"), copy.opened(study):
        pass


def test_a_refused_folder_is_left_as_it_was(finished, tmp_path):
    study = finished.study()
    (tmp_path / "diary.txt").write_text("mine")
    with pytest.raises(ResultsError, match="must be empty"), Folder(tmp_path).opened(study):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["diary.txt"]
    with (
        pytest.raises(ResultsError, match="cannot be written"),
        Folder(tmp_path / "diary.txt").opened(study),
    ):
        pass


def test_the_sentence_of_a_page_names_all_lines_that_are_best_everywhere():
    def setting(p, **as_good):
        ranks = [Rank(label, 0.5, 0.1, 0.0, 0.1, good) for label, good in as_good.items()]
        return Setting("one", p, tuple(ranks), ())

    study = studies.parse(STUDY)
    settings = (setting(0.3, a=True, b=True), setting(0.6, b=True, a=True))
    both = Summary("accuracy", settings, tuple(findings.sentences(settings)))
    assert headline(study, None, both)[0] == (
        "Each of a and b is the best line, or cannot be told from it, in both settings."
    )
    one = Summary("accuracy", settings[:1], ())
    assert headline(study, None, one)[0] == (
        "a is best, with test accuracy 0.50 ± 0.10, but b cannot be told from it."
    )
    alone = Summary("accuracy", (setting(0.3, a=True, b=False),), ("x",))
    assert headline(study, None, alone)[0] == (
        "a is best, with test accuracy 0.50 ± 0.10: 0.00 ± 0.10 better than b, the next."
    )


def test_a_study_in_the_folder_inside_is_reported_along_with_it(copy):
    assert "clock" not in write_report(copy)
    shutil.copytree(copy.path, copy.beside)
    record(Folder(copy.beside), lambda content: content.update(complete=False))
    assert "clock" not in write_report(copy)  # it is still running
    record(Folder(copy.beside), lambda content: content.update(complete=True))
    assert write_report(copy)["clock"]["runs"] == 3
    assert 'href="clock/report.html"' in (copy.path / "report.html").read_text()
    assert "clock/report.html" not in (copy.beside / "report.html").read_text()
