"""Drawing reads the table and nothing else, for studies of any shape."""

from dataclasses import replace
from itertools import pairwise

import matplotlib.image
import numpy as np
import pyarrow
import pytest

from fedcommons.figures import captions, series, style
from fedcommons.figures.draw import draw_all
from fedcommons.figures.plots import PLOTS
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Figure, Line, Study
from fedcommons.simulate.result import THEORY
from fedcommons.simulate.studies import KINDS, paper

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
            row["diverged"] = [0] * (T + 1)
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
        assert s.half_width("accuracy")[0] == pytest.approx(2.4469 * 0.01, rel=1e-3)  # 7 runs


def drawn(kind, lines, rounds=25, runs=7, change=lambda table: table):
    """A figure's picture and series, of lines given as (label, curve)."""
    figure = Figure("f", kind, "A title", tuple(Line(*line) for line in lines))
    study = Study("tiny", (figure,), rounds=rounds, runs=runs)
    found = series.read(figure, change(table_for(study, runs)))
    with style.applied():
        return PLOTS[kind](figure, found, study.measured[0]), found


def values_of(axes):
    """The y of every line that has any."""
    return [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata())]


def shared(c, d, p=0.5, **options):
    return Curve("single-class", 0.0, p, c, d, **options)


def test_curves_are_drawn_with_their_values_and_bands():
    picture, found = drawn(
        "curves", [("a", shared(0.1, 3)), ("b", shared(0.2, 3)), ("a", shared(0.1, 3, p=0.7))]
    )
    left, right, left_below, right_below = picture.axes
    assert values_of(left) == [s.mean("accuracy").tolist() for s in found[:2]]
    assert values_of(right) == [found[2].mean("accuracy").tolist()]
    assert values_of(left_below) == [s.mean("second_moment")[:-1].tolist() for s in found[:2]]
    assert values_of(right_below) == [found[2].mean("second_moment")[:-1].tolist()]
    lower = found[0].mean("accuracy") - found[0].half_width("accuracy")
    [path] = left.collections[0].get_paths()
    assert np.isin(lower.round(6), path.vertices[:, 1].round(6)).all()
    assert left.lines[0].get_color() == right.lines[0].get_color() != left.lines[1].get_color()


@pytest.mark.parametrize("kind", ["curves", "second-moment"])
@pytest.mark.parametrize("zero", [("a",), ("a", "b")])
def test_moments_that_are_0_have_no_logarithm(tmp_path, kind, zero):
    def change(table):
        is_zero = np.isin(table["label"].to_pylist(), zero)
        for name in table.column_names:
            if name.endswith("_mean") and not name.startswith("accuracy"):
                values = np.where(is_zero, 0 * table[name].to_numpy(), table[name].to_numpy())
                place = table.column_names.index(name)
                table = table.set_column(place, name, pyarrow.array(values))
        return table

    lines = [("a", shared(0.1, 3, p=0.9)), ("b", shared(0.2, 3, p=0.7))]
    picture, _ = drawn(kind, lines, change=change)
    picture.savefig(tmp_path / "f.png")
    assert picture.axes[-1].get_yscale() == ("linear" if len(zero) == 2 else "log")


def test_scalar_products_are_drawn_with_their_values():
    picture, found = drawn("scalar-products", [("a", shared(0.1, 3)), ("b", shared(0.2, 3))])
    for axes, s in zip(picture.axes, found, strict=True):
        parts = ("type1", "type2", "gradient_norm2")
        wanted = [s.mean(name)[np.isfinite(s.mean(name))].tolist() for name in parts]
        assert values_of(axes)[:3] == wanted


def test_second_moments_and_reductions_are_drawn_with_their_values_and_bands():
    picture, [s] = drawn("second-moment", [("a", shared(0.1, 3))])
    for axes, names in zip(
        picture.axes,
        (
            ("second_moment", "second_moment_exact"),
            ("reduction", "reduction_expected", "remark_bound", "theorem2_bound"),
        ),
        strict=True,
    ):
        wanted = [s.mean(name)[np.isfinite(s.mean(name))].tolist() for name in names]
        assert values_of(axes) == wanted
        assert len(axes.collections) == len(names)  # a band each


def test_heterogeneity_is_drawn_with_its_values():
    picture, found = drawn("heterogeneity", [("a", shared(0.1, 3)), ("b", shared(0.2, 3))])
    marks = {line.get_label(): line.get_xdata().tolist() for line in picture.axes[0].lines}
    for label, name in (("before", "before"), ("expected", "after_expected")):
        assert marks[label] == [s.mean(f"heterogeneity_{name}")[0] for s in found]
    after = picture.axes[0].containers[0].lines[0].get_xdata().tolist()
    assert after == [s.mean("heterogeneity_after")[0] for s in found]


def test_a_grid_has_a_row_for_each_label_and_p():
    lines = [
        (label, shared(c, d, p=p, **options))
        for label, options in (("paper", {}), ("ours", {"code": "owner-corrected"}))
        for p in (0.3, 0.7)
        for c in (0.1, 0.5)
        for d in range(1, 10)
    ]
    picture, found = drawn("grid", lines)
    assert len(picture.axes) == 3 * 4
    for k in range(4):
        ten, twenty, cost = picture.axes[3 * k : 3 * k + 3]
        mine = found[18 * k : 18 * (k + 1)]
        for axes, t in ((ten, 10), (twenty, 20)):
            wanted = np.reshape([s.mean("accuracy")[t] for s in mine], (2, 9))
            assert np.array_equal(axes.images[0].get_array(), wanted)
        assert len(cost.containers) == 9  # every d, also beyond the last colour
        looks = set()
        for d, bars in enumerate(cost.containers):
            assert bars.lines[0].get_ydata().tolist() == [
                s.mean("accuracy")[10] for s in mine if s.curve.copies == d + 1
            ]
            looks.add((bars.lines[0].get_color(), bars.lines[0].get_linestyle()))
        assert len(looks) == 9


def test_a_grid_that_shares_nothing_has_no_logarithm_of_its_cost():
    picture, _ = drawn("grid", [("a", shared(0.0, 0)), ("a", shared(0.1, 3))])
    assert picture.axes[2].get_xscale() == "linear"


def test_lines_that_share_a_label_look_different():
    picture, _ = drawn("curves", [("shared", shared(c, 1)) for c in (0.1, 0.5)])
    one, other = picture.axes[0].lines
    assert one.get_color() != other.get_color()
    words = {text.get_text() for text in picture.axes[0].texts}
    assert words == {"shared, c = 0.1", "shared, c = 0.5"}


def test_whatever_tells_lines_apart_is_in_their_labels():
    ways = [
        shared(0.1, 3), shared(0.1, 3, model="mlp"), shared(0.1, 3, assumed_prob=0.2),
        shared(0.1, 3, stragglers="markov", mean_absence=5.0),
        shared(0.1, 3, code="owner-corrected"),
        shared(0.1, 3, estimator="memory"), shared(0.1, 3, estimator="memory", warm=True),
        shared(0.1, 3, algorithm="coded_fedavg", local_steps=5),
        shared(0.1, 3, algorithm="coded_fedavg", batch_size=4),
        shared(0.1, 3, algorithm="coded_fedavg", server_rate=2.0),
        Curve("single-class", straggler_prob=0.5, algorithm="fedprox", mu=0.1),
        Curve("single-class", straggler_prob=0.5, algorithm="fedprox", mu=0.2),
    ]  # fmt: skip
    for kind in ("curves", "grid"):
        figure = Figure("f", kind, "", tuple(Line("same", curve) for curve in ways))
        assert len(set(captions.labels(figure))) == len(ways)


def test_references_are_known_by_their_curves():
    iid, waits = Curve("iid", 0.0, 0.5), Curve("single-class", estimator="wait_for_all")
    _, found = drawn("curves", [("x", iid), ("IID", shared(0.1, 3)), ("y", waits)])
    assert [s.reference for s in found] == [True, False, True]
    _, found = drawn("curves", [("IID", iid), ("nobody missing", replace(iid, proportion=0.5))])
    assert [s.reference for s in found] == [False, False]


def test_footers_say_what_the_bars_and_bands_are():
    for kind, words in (("curves", "Bands are"), ("grid", "Bars are")):
        picture, _ = drawn(kind, [("a", shared(0.1, 3))])
        assert f"{words} 95 % intervals." in " ".join(picture.get_supxlabel().split())
        picture, _ = drawn(kind, [("a", shared(0.1, 3))], runs=1)
        assert picture.get_supxlabel() == "A title. A single run."


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


@pytest.mark.parametrize("kind", ["curves", "grid"])
def test_no_axis_of_a_proportion_goes_past_1_whatever_the_bands_do(kind):
    """Of two runs bands are 6 times as wide as of many."""

    def wide(table):
        place = table.column_names.index("accuracy_sem")
        return table.set_column(place, "accuracy_sem", pyarrow.array([0.3] * len(table)))

    picture, _ = drawn(kind, [("a", shared(0.1, 3)), ("b", shared(0.2, 3))], runs=2, change=wide)
    name = "test accuracy" if kind == "curves" else "accuracy after"
    found = [one for one in picture.axes if name in one.get_ylabel() + one.get_title()]
    assert found
    for axes in found if kind == "curves" else [one for one in found if "cost" in one.get_xlabel()]:
        low, high = axes.get_ylim()
        assert -0.02 <= low < high <= 1.02
