"""Drawing reads the table and nothing else, for studies of any shape."""

from itertools import pairwise

import matplotlib.image
import numpy as np
import pyarrow
import pytest

from fedcommons.figures import series, style
from fedcommons.figures.draw import draw_all
from fedcommons.figures.plots import PLOTS
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.result import THEORY
from fedcommons.simulate.studies import KINDS, Figure, Line, Study, paper

MEASURES = (
    "accuracy", "second_moment", "second_moment_exact", "gradient_norm2", "heterogeneity_before",
    "heterogeneity_after", "heterogeneity_after_expected", *THEORY,
)  # fmt: skip


def table_for(study, runs=7, seed=0):
    rng = np.random.default_rng(seed)
    T = study.rounds
    columns = {}
    for figure in study.figures:
        for line in figure.lines:
            row = {"figure": [figure.name] * (T + 1), "label": [line.label] * (T + 1)}
            row["runs"] = [runs] * (T + 1)
            for name in MEASURES:
                row[f"{name}_mean"] = rng.uniform(0.1, 0.9, T + 1)
                row[f"{name}_sem"] = np.full(T + 1, np.nan if runs == 1 else 0.01)
            for name in ("second_moment", "type1", "reduction"):
                row[f"{name}_mean"][-1] = np.nan
            for name, values in row.items():
                columns.setdefault(name, []).extend(values)
    return pyarrow.table(columns)


def test_every_kind_can_be_drawn():
    assert set(PLOTS) == set(KINDS)


def test_every_figure_of_the_paper_is_drawn_and_not_blank(tmp_path):
    study = paper()
    files = draw_all(study, table_for(study), tmp_path / "figures")
    assert list(files) == [figure.name for figure in study.figures]
    for name in files:
        image = matplotlib.image.imread(tmp_path / "figures" / f"{name}.png")
        assert image.shape[1] >= 1000  # a column at 300 dpi
        assert (image[..., :3].min(axis=2) < 0.9).mean() > 0.01


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rounds", "runs"), [(1, 1), (3, 2)])
def test_the_smallest_studies_can_be_drawn(tmp_path, kind, rounds, runs):
    line = Line("only", Curve("iid", 0.0, 0.5, 0.5, 1))
    study = Study("tiny", (Figure("f", kind, "A title", (line,)),), rounds=rounds, runs=runs)
    draw_all(study, table_for(study, runs), tmp_path / "figures")


def test_the_same_table_gives_the_same_files(tmp_path):
    study = paper().only(["figure1", "grid"])
    for name in "ab":
        draw_all(study, table_for(study), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_series_are_the_rows_of_their_line():
    study = paper().only(["figure2", "second-moment"])
    table = table_for(study)
    figure = study.figures[0]
    rows = [r for r in table.to_pylist() if r["figure"] == figure.name]
    for k, s in enumerate(series.read(figure, table)):
        mine = rows[k * 51 : (k + 1) * 51]
        assert {r["label"] for r in mine} == {s.label}
        assert s.mean("accuracy").tolist() == [r["accuracy_mean"] for r in mine]
        assert s.half_width("accuracy")[0] == pytest.approx(1.96 * 0.01, rel=1e-3)


def test_panels_by_p_show_who_waits_for_everybody_everywhere():
    study = paper().only(["beyond-single-class"])
    by_p = series.panels(series.read(study.figures[0], table_for(study)))
    assert list(by_p) == [0.3, 0.5, 0.7]
    for group in by_p.values():
        assert group[0].label == "nobody missing"
        assert len(group) == 7


def test_labels_do_not_overlap():
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(3, 3), dpi=100)
    axes = picture.subplots()
    axes.set_ylim(0, 1)
    ends = [(f"line {k}", 0.79 + k / 1000, "black") for k in range(7)]
    style.label_ends(axes, ends)
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) == 7
    for one, other in pairwise(boxes):
        assert not one.overlaps(other)
