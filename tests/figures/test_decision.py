"""The decision page in a real browser: its numbers are the library's, and all can be read."""

import json
import re
from itertools import combinations

import numpy as np
import pytest
from matplotlib.text import Text

from fedcommons import plan
from fedcommons.delay_table import DelayTable
from fedcommons.errors import ArgumentError, ResultsError
from fedcommons.figures import decision
from fedcommons.figures import plan as picture
from fedcommons.plan import timing
from tests.figures.test_page import HOSTILE, browser, opened  # noqa: F401 (fixtures)

COUNTS = [[40, 3, 0], [0, 31, 7], [12, 12, 12], [3, 0, 50], [20, 1, 5]]
NAMES = (HOSTILE, "b", "c", "d", "e")


def made(*, timed=True, draws=1, missing=(0.1, 0.4, 0.0, 0.3, 0.6)):
    """A page's content: five unlike sites, and maybe several possible partitions."""
    counts = np.array([np.roll(COUNTS, k, axis=1) for k in range(draws)])
    sites = plan.Sites(counts, np.array(missing), np.array([0.5, 0.33, 1, 0.8, 0.21]), NAMES)
    times = None
    if timed:
        own = counts.mean(axis=0).sum(axis=1)
        columns = [np.array(v, float) for v in ([9, 4, 2, 6, 3], [0.5, 0, 1, 0.2, 0.4])]
        rest = ([0] * 5, [0.3] * 5, [0.1] * 5, [0, 0.2, 0, 0.1, 0], [0, 60, 0, 20, 0])
        columns += [np.array(v, float) for v in rest]
        table = DelayTable(NAMES, columns[0], True, *columns[1:])
        times = timing.of_table(table, own, 4 * own + 90, per_example=3.0, words="made up")
    question = plan.Question(
        sites,
        plan.assumed_geometry(3),
        plan.Prices(2.0, 0.1, 20),
        plan.course.measured([0.2, 0.5, 0.9, 2.0], [10, 20, 19, 40], "trained"),
        times,
    )
    options = plan.options(
        sites, question.geometry, copies=range(5), proportions=(0.2, 0.6, 1), prices=question.prices
    )
    share = {o: plan.shared(question, o.part, int(o.copies)) for o in options}
    outcomes = {o: plan.at_deadline(question, share[o], None) for o in options} if timed else {}
    taken = plan.recommend(options).option
    return decision.Decision(
        question,
        options,
        taken,
        f"Take it. {HOSTILE}",
        outcomes,
        [f"much {HOSTILE}"],
        "fedcommons plan",
    )


def slider(page, name):
    return page.get_by_role("slider", name=name, exact=True)


@pytest.mark.parametrize("timed", [True, False])
def test_the_page_computes_what_the_library_does(opened, timed):  # noqa: F811
    """At 100 random settings, in one page; with several partitions where nothing is timed."""
    found = made(timed=timed, draws=1 if timed else 3)
    page = opened(decision.render(found))
    rng = np.random.default_rng(0)
    settings = []
    for _ in range(100):
        parts = rng.choice([0, 1, rng.random()], 5) * rng.random(5) ** (rng.random() < 0.5)
        deadline = float(np.exp(rng.uniform(2, 6))) if timed else None
        settings.append([parts.tolist(), int(rng.integers(5)), deadline])
    pages = page.evaluate("all => all.map(([p, d, T]) => outcome(p, d, T))", settings)
    names = {"extraLoad": "extra_load", "extraSeconds": "extra_seconds", "p": "straggler_prob",
             "compute": "extra_compute"}  # fmt: skip
    never = 0
    for (parts, d, deadline), theirs in zip(settings, pages, strict=True):
        ours = plan.outcome(found.question, plan.shared(found.question, parts, d), deadline)
        for name, value in theirs.items():
            expected = getattr(ours, names.get(name, name))
            if expected is None:
                assert value is None
                continue
            np.testing.assert_allclose(
                np.array(value, float), expected, rtol=1e-9, atol=1e-12, err_msg=name
            )
        never += np.isinf(ours.rounds)
    assert never < 60  # most settings say something


def test_sliders_move_everything(opened):  # noqa: F811
    page = opened(decision.render(made()))
    assert "Move a slider" in page.locator("main").inner_text()

    def moved(n):
        return int(
            page.locator("[data-measure=moved] >> b").inner_text().replace(",", "")
        ) == round(n)

    question = made().question
    everything = plan.shared(question, 1.0, 2).sent.sum()
    slider(page, "every site shares").fill("1")
    slider(page, "copies of each record, d").fill("2")
    assert moved(everything)
    before = page.locator("[data-measure=hours] >> b").inner_text()
    slider(page, "deadline of a round").fill("1")
    assert page.locator("[data-measure=hours] >> b").inner_text() != before
    assert not page.get_by_label("always the best deadline").is_checked()
    slider(page, "b").fill("0")
    row = page.locator("#sites tbody tr").nth(1)
    assert "shares nothing" in row.inner_text()
    page.get_by_role("button", name="Back to the recommendation").click()
    assert "shares nothing" not in row.inner_text()
    for name in ("Rounds to the target", "Unevenness of the labels", "Cost"):
        page.get_by_role("radio", name=name).check()
        heads = page.locator("#curves h3").all_inner_texts()
        assert len(heads) == 3
        assert all(head.startswith(name) for head in heads)


def test_a_site_that_would_gain_more_by_not_sharing_is_told(opened):  # noqa: F811
    found = made(timed=False, missing=(0.1, 0.97, 0.97, 0.97, 0.97))
    page = opened(decision.render(found))
    slider(page, "every site shares").fill("1")
    slider(page, "copies of each record, d").fill("1")
    share = plan.shared(found.question, 1.0, 1)
    gain = plan.outcome(found.question, share).gain
    assert gain[0] < 0
    rows = page.locator("#sites tbody tr")
    for i in range(5):
        words = rows.nth(i).inner_text()
        assert ("would gain more by not sharing" in words) == (gain[i] <= 0)
        if gain[i] > 0:
            assert re.search(r"there would be [\d.]+ % (more|less) noise|the noise would be", words)


@pytest.mark.parametrize("width", [1280, 390])
def test_everything_can_be_read(opened, width):  # noqa: F811
    for timed in (True, False):
        page = opened(decision.render(made(timed=timed)), width=width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert "NaN" not in page.locator("main").inner_text()
    assert page.locator(".warning").inner_text() == f"Assumed: much {HOSTILE}"
    assert HOSTILE in page.locator("#sites tbody").inner_text()
    front = page.locator(".front-label" if width > 620 else ".front-list li")
    assert front.count() > 2
    assert all(re.match(r"c = [\d.]+, d = \d", words) for words in front.all_text_contents())
    boxes = [label.bounding_box() for label in front.all()]
    for a, b in combinations(boxes, 2):
        apart_x = a["x"] + a["width"] <= b["x"] + 0.5 or b["x"] + b["width"] <= a["x"] + 0.5
        apart_y = a["y"] + a["height"] <= b["y"] + 2 or b["y"] + b["height"] <= a["y"] + 2
        assert apart_x or apart_y


def test_the_data_are_valid_json():
    html = decision.render(made())
    data = re.search(r'<script type="application/json" id="decision">(.*?)</script>', html, re.S)
    assert len(json.loads(data[1], parse_constant=pytest.fail)["options"]) == 13


def test_a_page_that_cannot_be_is_refused(tmp_path):
    question = made(timed=False).question
    with pytest.raises(ResultsError, match="cannot be written"):
        decision.check(question, tmp_path)
    other = plan.Question(
        question.sites, question.geometry, question.prices, question.course, None, "owner-corrected"
    )
    with pytest.raises(ArgumentError, match="page must go with the code equal-split"):
        decision.check(other, tmp_path / "plan.html")
    sites = plan.sites_of("iid", n_sites=61, n_classes=2, class_size=100)
    many = plan.Question(sites, plan.assumed_geometry(2), question.prices, question.course)
    with pytest.raises(ArgumentError, match="page must be of at most 60 sites"):
        decision.check(many, tmp_path / "plan.html")


def test_the_picture_labels_c_and_d_and_hides_none(tmp_path, monkeypatch):
    drawn = []
    original = picture.FigureCanvasAgg

    def kept(figure):
        drawn.append(original(figure))
        return drawn[-1]

    monkeypatch.setattr(picture, "FigureCanvasAgg", kept)
    found = made(timed=False)
    picture.draw_plan(found.options, found.taken, tmp_path / "plan.png")
    axes, renderer = drawn[0].figure.axes[0], drawn[0].get_renderer()
    words = [text.get_text() for text in axes.texts]
    assert len(words) > 3
    taken = found.taken
    assert f"c = {taken.proportion:.3g}, d = {taken.copies:g}" in words
    boxes = [Text.get_window_extent(text, renderer) for text in axes.texts]
    assert not any(a.overlaps(b) for a, b in combinations(boxes, 2))
