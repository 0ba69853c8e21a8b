"""The report page in a real browser, made of a small table with known values."""

import csv
import json
import os
import re
import shutil
from itertools import combinations

import pyarrow
import pytest
from playwright.sync_api import sync_playwright

from fedcommons.figures import style
from fedcommons.figures.claims_section import VERDICTS
from fedcommons.figures.page import render_page
from fedcommons.intervals import half_width
from fedcommons.simulate import definition, studies
from fedcommons.simulate.result import THEORY

HOSTILE = "</script ><b>x</b><!--<script>&amp;'\""
MEASURES = (
    *("accuracy", "second_moment", "second_moment_exact", "gradient_norm2"),
    *("heterogeneity_before", "heterogeneity_after", "heterogeneity_after_expected"),
    *THEORY,
)


def curves_figure(name, partition, **options):
    lines = [
        {"label": "nobody missing", "partition": "iid", "p": 0.0, "estimator": "wait_for_all"},
        {"label": HOSTILE, "c": 0.5, "d": 2},
        {"label": "no sharing"},
    ]
    return {
        "name": name, "kind": "curves", "title": f"{name} & more", "partition": partition,
        "p": [0.3, 0.7], "curves": lines, **options,
    }  # fmt: skip


STUDY = studies.parse(
    {
        "name": "tiny",
        "clients": 4,
        "rounds": 25,
        "runs": 3,
        "figure": [
            curves_figure("first", "single-class"),
            curves_figure("second", "dirichlet", alpha=0.1),
            {
                "name": "products", "kind": "scalar-products", "partition": "single-class",
                "curves": [{"label": "a", "p": 0.0}, {"label": "b", "p": 0.5, "c": 0.2, "d": 3}],
            },
            {
                "name": "evenness", "kind": "heterogeneity", "partition": "single-class", "p": 0.5,
                "curves": [
                    {"label": HOSTILE, "c": [0.1, 0.5], "d": 3},
                    {"label": "optimal", "scheme": "optimal", "c": 0.1, "d": 3},
                ],
            },
            {
                "name": "moments", "kind": "second-moment", "partition": "single-class",
                "p": [0.3, 0.5],
                "curves": [{"label": "x", "c": 0.1, "d": 3}, {"label": "y", "c": 0.2, "d": 3}],
            },
            {
                "name": "grid", "kind": "grid", "partition": "single-class", "p": 0.7,
                "curves": [{"label": "grid", "c": [0.1, 0.5], "d": [1, 3]}],
            },
        ],
    }
)  # fmt: skip
CLAIMS = {
    "runs": 3,
    "claims": [
        {
            "id": f"claim-{k}",
            "claim": f"Claim {k} {HOSTILE}",
            "where": "Section IV",
            "statistic": "a paired difference",
            "fixed_beforehand": k != 1,
            "verdict": verdict,
            "evidence": f"evidence {k}",
            "components": [
                {"name": "a part", "difference": -0.25, "sem": None, "half": None, "z": 3.0}
            ],
        }
        for k, verdict in enumerate(VERDICTS)
    ],
}
RECORD = {
    "command": "fedcommons reproduce --runs 3", "versions": {"numpy": "2.1"}, "machine": {},
    "commit": None, "digest": "0" * 64, "seconds": 1.5,
}  # fmt: skip
NO_CLAIMS = {"runs": 3, "claims": []}


def value(measure, k, t):
    """The mean of the k-th line in round t: every line, round and measure has another."""
    if measure.startswith("heterogeneity"):
        return 0.9 / (1 + MEASURES.index(measure)) / (1 + k)
    if measure == "accuracy":
        return 0.1 + 0.01 * k + 0.5 * t / (t + 3)
    return (
        (MEASURES.index(measure) + 1) * 1e5 * (k + 1) / (t + 1) * (-1 if "type2" in measure else 1)
    )


def results_table(study):
    """What curves.parquet holds, with the values of `value`."""
    rows = []
    for figure in study.figures:
        for k, line in enumerate(figure.lines):
            described = line.curve.as_row()
            described["setting"] = described.pop("partition")
            for t in range(study.rounds + 1):
                row = {"figure": figure.name, "label": line.label, **described, "round": t}
                for measure in MEASURES:
                    absent = t == study.rounds and not measure.startswith(("acc", "het"))
                    # No formula says what the optimal scheme leaves.
                    absent |= measure.endswith("after_expected") and line.curve.scheme == "optimal"
                    row[f"{measure}_mean"] = float("nan") if absent else value(measure, k, t)
                    no_spread = absent or study.runs == 1
                    row[f"{measure}_sem"] = float("nan") if no_spread else 0.01
                rows.append(row | {"runs": study.runs, "diverged": 0})
    return pyarrow.Table.from_pylist(rows)


def rendered(study, claims=NO_CLAIMS):
    files = {figure.name: f"figures/{figure.name}.svg" for figure in study.figures}
    return render_page(study, results_table(study), claims, RECORD, files)


@pytest.fixture(scope="module")
def browser():
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("chromium must be installed in CI: apt-get install chromium")
        pytest.skip("chromium is not installed, so the report page was not tested in a browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, tmp_path):
    """Open a page and, at the end, see that it complained of nothing and asked for nothing."""
    complaints, contexts = [], []

    def open_page(html, width=1280, **options):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda request: (
                request.url.startswith((path.as_uri(), "data:")) or complaints.append(request.url)
            ),
        )
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(opened):
    return opened(rendered(STUDY, CLAIMS))


def figure(page, name):
    return page.locator(f"#fig-{name}")


def drawn(section):
    """Label -> path of its line, for every line in the section's charts."""
    return section.locator(".series").evaluate_all(
        "groups => Object.fromEntries(groups.map("
        "  (g, k) => [k + g.dataset.label, g.querySelector('.line').getAttribute('d')]))"
    )


def shown_values(section, chart=0):
    """Caption and (label, value, spread) rows of the box that follows the pointer."""
    tip = section.locator(".tip").nth(chart)
    rows = tip.locator("tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return tip.locator("caption").text_content(), rows


def test_data_are_valid_json_without_nan():
    html = rendered(STUDY, CLAIMS)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    figures = json.loads(data[1], parse_constant=pytest.fail)
    assert [f["kind"] for f in figures] == [f.kind for f in STUDY.figures]
    assert figures[0]["lines"][0]["values"]["second_moment"]["mean"][-1] is None


def test_page_says_what_was_run(page):
    words = page.locator("main > .lead").first.inner_text()
    for fact in ("3 runs", "25 rounds", "N = 4", "K = 30", "seed 0", "3 claims"):
        assert fact in words
    assert "fedcommons reproduce --runs 3" in page.locator("#again").inner_text()


def test_every_figure_has_a_chart(page):
    for f in STUDY.figures:
        section = figure(page, f.name)
        if not section.is_visible():
            page.get_by_role("radio", name="Dirichlet").first.check()
        assert section.locator(".plot svg").first.is_visible()
        marks = section.locator(".plot").locator(".line, .after, td")
        assert marks.count() >= len({line.label for line in f.lines})


def test_switch_of_p_changes_the_lines(page):
    section = figure(page, "first")
    before = drawn(section)
    section.get_by_role("radio", name="0.3").check()
    after = drawn(section)
    assert before.keys() == after.keys()
    for label in before:
        # Who waits for everybody is the same in every panel.
        assert (before[label] == after[label]) == ("nobody missing" in label)
    assert "p\u00a0=\u00a00.3" in section.locator("h3").first.text_content()


def test_switch_of_p_works_from_the_keyboard(page):
    section = figure(page, "moments")
    before = drawn(section)
    section.get_by_role("radio", name="0.5").focus()
    page.keyboard.press("ArrowLeft")
    assert drawn(section) != before


def test_switch_of_setting_shows_the_other_figure_and_keeps_p(page):
    figure(page, "first").get_by_role("radio", name="0.3").check()
    page.get_by_role("radio", name="Dirichlet, α = 0.1").check()
    assert not figure(page, "first").is_visible()
    assert figure(page, "second").get_by_role("radio", name="0.3").is_checked()


def test_link_to_a_figure_behind_the_switch_shows_it(page):
    page.get_by_role("link", name="second & more").click()
    figure(page, "second").wait_for(state="visible")


def test_hover_shows_the_values_of_the_table(page):
    section = figure(page, "first")
    section.locator(".canvas svg").first.hover(position={"x": 150, "y": 50})
    caption, rows = shown_values(section)
    t = int(caption.removeprefix("Round "))
    assert 0 < t < STUDY.rounds
    lines = STUDY.figures[0].lines
    expected = {
        line.label: value("accuracy", k, t)
        for k, line in enumerate(lines)
        if line.curve.straggler_prob == 0.7 or line.curve.estimator == "wait_for_all"
    }
    assert expected.keys() == {"nobody missing", HOSTILE, "no sharing"}
    assert {label: number for label, number, _ in rows} == {
        label: f"{number:.4f}" for label, number in expected.items()
    }
    assert {spread for *_, spread in rows} == {f"± {float(half_width(0.01, 3)):.4f}"}


def test_arrow_keys_read_the_values(page):
    section = figure(page, "first")
    section.locator(".canvas svg").first.focus()
    page.keyboard.press("End")
    assert shown_values(section)[0] == f"Round {STUDY.rounds}"
    page.keyboard.press("Escape")
    assert not section.locator(".tip").first.is_visible()


def test_tap_shows_values(opened):
    page = opened(rendered(STUDY), width=390, has_touch=True)
    section = figure(page, "first")
    section.locator(".canvas svg").first.tap()
    assert section.locator(".tip").first.is_visible()


def test_click_on_a_label_hides_its_line(page):
    section = figure(page, "first")
    count = section.locator(".series").count()
    label = section.get_by_role("button", name="no sharing").first
    label.click()
    assert section.locator(".series").count() == count - 2  # in both charts
    assert label.get_attribute("aria-pressed") == "false"
    label.click()
    assert section.locator(".series").count() == count


def test_second_moments_stand_beside_their_exact_means(page):
    section = figure(page, "moments")
    section.locator(".canvas svg").first.focus()
    page.keyboard.press("Home")
    _, rows = shown_values(section)
    k = next(k for k, line in enumerate(STUDY.figures[4].lines) if line.curve.straggler_prob == 0.5)
    wanted = {"measured": "second_moment", "exact": "second_moment_exact"}
    assert {label: float(number.replace(",", "")) for label, number, _ in rows} == {
        label: pytest.approx(value(name, k, 0), rel=1e-3) for label, name in wanted.items()
    }


def test_colours_of_the_page_are_those_of_the_figures(page):
    for k, wanted in enumerate(style.COLOURS):
        found = page.evaluate(
            f"getComputedStyle(document.documentElement).getPropertyValue('--series-{k}')"
        )
        assert found == wanted


def test_labels_do_not_overlap(page):
    for chart in page.locator(".labels.direct").all():
        boxes = [button.bounding_box() for button in chart.locator("button:visible").all()]
        for a, b in combinations(boxes, 2):
            assert abs(a["y"] - b["y"]) >= min(a["height"], b["height"]) - 0.5


def test_grid_switches_the_round_and_shows_the_cost(page):
    section = figure(page, "grid")
    cells = section.locator(".heat tbody td")
    assert cells.all_inner_texts() == [f"{value('accuracy', k, 10):.3f}" for k in (2, 3, 0, 1)]
    section.get_by_role("radio", name="20").check()
    assert cells.all_inner_texts() == [f"{value('accuracy', k, 20):.3f}" for k in (2, 3, 0, 1)]
    cells.nth(1).hover()
    _, rows = shown_values(section)
    assert [row[:2] for row in rows] == [
        ["accuracy", f"{value('accuracy', 3, 20):.4f}"],
        ["offline cost dc", "1.5"],
    ]


@pytest.fixture
def at_sites(opened):
    """A study of two metrics whose sites are known: AUC is undefined at the second site."""
    lines = [{"label": "one"}, {"label": "two", "c": 0.5, "d": 2}]
    figures = [
        {"name": "f", "kind": "curves", "partition": "single-class", "p": 0.3, "curves": lines},
        {"name": "g", "kind": "grid", "partition": "single-class", "p": 0.3,
         "curves": [{"label": "grid", "c": [0.1, 0.5], "d": [1, 3]}]},
    ]  # fmt: skip
    study = studies.parse(
        {"name": "s", "clients": 4, "rounds": 10, "runs": 3, "metrics": ["accuracy", "auc"]}
        | {"figure": figures}
    )
    table = results_table(study)
    accuracy = table["accuracy_mean"].to_numpy()
    for name, less in (("auc", 0.01), ("worst_site_accuracy", 0.05), ("worst_site_auc", 0.07)):
        table = table.append_column(f"{name}_mean", pyarrow.array(accuracy - less))
        table = table.append_column(f"{name}_sem", table["accuracy_sem"])
    sites = [
        {"curve": line.curve.key, "site": site, "round": 10, "metric": metric, "sem": 0.01}
        | {"mean": 0.5 + 0.1 * s + 0.01 * k, "runs": 0 if (site, metric) == ("b", "auc") else 3}
        for f in study.figures
        for line in f.lines
        for s, site in enumerate("abc")
        for k, metric in enumerate(("accuracy", "auc"))
    ]
    files = {f.name: f"figures/{f.name}.svg" for f in study.figures}
    sites = pyarrow.Table.from_pylist(sites)

    def show(**options):
        html = render_page(study, table, NO_CLAIMS, RECORD, files, sites=sites)
        return opened(html.replace('src="figures/', 'src="data:,'), **options)

    return show


def test_the_switch_of_the_metric_changes_the_table_of_the_sites_too(at_sites):
    page = at_sites()
    for name in ("f", "g"):
        section = figure(page, name)
        tables = section.locator(".sites tbody")
        heads = [tables.nth(k).locator("tr").first.locator("td") for k in (0, 1)]
        assert [table.is_visible() for table in heads[0].all()] == [True] * 4
        assert "0.500" in section.locator(".sites .worst:visible").first.inner_text()
        section.get_by_role("radio", name="AUC").check()
        assert not tables.nth(0).is_visible()
        assert tables.nth(1).is_visible()
        assert heads[1].nth(2).inner_text() == "–"
        assert "undefined, and left out, at b" in section.locator(".sites").inner_text()
        assert "0.510" in section.locator(".sites .worst:visible").first.inner_text()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_switch_of_the_sites_draws_the_worst_site_and_the_address_keeps_it(at_sites, width):
    page = at_sites(width=width)
    section = figure(page, "f")
    section.get_by_role("radio", name="AUC").check()
    section.get_by_role("radio", name="worst site").check()
    assert "AUC at the worst site, p" in section.locator("h3").first.inner_text()
    section.locator(".chart svg").first.focus()
    page.keyboard.press("End")
    _, rows = shown_values(section)
    seen = sorted(float(of_line) for _, of_line, _ in rows)
    expected = [value("accuracy", k, 10) - 0.07 for k in range(2)]
    assert seen == pytest.approx(expected, abs=1e-4)
    page.reload()
    assert figure(page, "f").get_by_role("radio", name="worst site").is_checked()
    grid = figure(page, "g")
    before = grid.locator(".heat td").first.inner_text()
    grid.get_by_role("radio", name="worst site").check()
    assert float(before) - float(grid.locator(".heat td").first.inner_text()) == pytest.approx(0.05)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_all_tables_of_the_sites_are_there_without_scripts(at_sites):
    page = at_sites(java_script_enabled=False)
    assert figure(page, "f").locator(".sites table:visible").count() == 2


def test_hostile_labels_are_text(page):
    button = figure(page, "first").locator(".labels button", has_text="</script >").first
    assert button.inner_text() == HOSTILE
    assert HOSTILE in page.locator("#claims").inner_text()
    assert page.locator("b", has_text=re.compile("^x$")).count() == 0


def test_all_claims_are_shown_with_their_verdicts(page):
    rows = page.locator(".claims > tbody > tr")
    order = ["does not hold", "undecided", "holds"]  # failures first
    claims = sorted(CLAIMS["claims"], key=lambda claim: order.index(claim["verdict"]))
    assert rows.count() == len(claims)
    for row, claim in zip(rows.all(), claims, strict=True):
        row.locator("summary").click()
        words = row.inner_text()
        for text in (claim["claim"], claim["verdict"], claim["statistic"], claim["evidence"]):
            assert text in words
        assert row.locator("table td").all_inner_texts() == ["a part", "−0.25", "–", "3"]
        assert ("set after a first result" in words) != claim["fixed_beforehand"]


def test_claims_are_filtered_by_verdict_and_by_their_words(page):
    rows = page.locator(".claim-row:visible")
    page.locator("#claims").get_by_role("radio", name="undecided 1").check()
    assert rows.evaluate_all("rows => rows.map(row => row.dataset.verdict)") == ["undecided"]
    page.locator("#claims").get_by_role("radio", name="all 3").check()
    page.get_by_role("searchbox").fill("not hold")
    assert rows.count() == 1
    page.reload()
    assert page.get_by_role("searchbox").input_value() == "not hold"
    assert rows.count() == 1
    page.get_by_role("searchbox").fill("nowhere")
    assert page.get_by_text("No claim is like that.").is_visible()


def test_the_address_keeps_what_was_chosen(page):
    figure(page, "first").get_by_role("radio", name="0.3").check()
    figure(page, "first").get_by_role("button", name="no sharing").first.click()
    page.get_by_role("radio", name="Dirichlet, α = 0.1").check()
    figure(page, "moments").get_by_role("radio", name="0.3").check()
    address = page.url
    page.reload()
    assert page.url == address
    assert not figure(page, "first").is_visible()
    assert figure(page, "second").get_by_role("radio", name="0.3").is_checked()
    hidden = figure(page, "second").get_by_role("button", name="no sharing").first
    assert hidden.get_attribute("aria-pressed") == "false"
    assert figure(page, "moments").get_by_role("radio", name="0.3").is_checked()
    hidden.click()
    figure(page, "moments").get_by_role("radio", name="0.5").check()
    figure(page, "second").get_by_role("radio", name="0.7").check()
    page.get_by_role("radio", name="single-class").first.check()
    assert page.url.endswith("#fig-first")  # as it was at first


def test_a_claim_has_a_link_and_whoever_follows_it_sees_the_claim(page):
    page.locator("#claims").get_by_role("radio", name="holds 1").last.check()
    link = page.locator("#claim-claim-2 a.link")
    target = link.get_attribute("href")
    page.evaluate(f"location.hash = {target!r}")
    page.locator("#claim-claim-2").wait_for(state="visible")
    page.reload()
    assert page.locator("#claim-claim-2").is_visible()


def test_the_csv_has_what_is_shown(page):
    section = figure(page, "first")
    section.get_by_role("button", name="no sharing").first.click()
    with page.expect_download() as download:
        section.get_by_role("link", name="Download as CSV").click()
    assert download.value.suggested_filename == "fig-first.csv"
    text = download.value.path().read_text(encoding="utf-8-sig")
    head, *rows = csv.reader(text.splitlines())
    assert head == ["chart", "line", "over", "at", "mean", "half of the 95 % interval"]
    shown = [row for row in rows if row[0].startswith("Test accuracy")]
    lines = [line for line in STUDY.figures[0].lines if line.label != "no sharing"]
    expected = {
        (line.label, t): value("accuracy", k, t)
        for k, line in enumerate(STUDY.figures[0].lines)
        if line in lines and line.curve.straggler_prob in (0.0, 0.7)
        for t in range(STUDY.rounds + 1)
    }
    assert {(row[1], int(row[3])): float(row[4]) for row in shown} == {
        key: pytest.approx(number, rel=1e-5) for key, number in expected.items()
    }


@pytest.mark.parametrize("width", [1280, 390])
def test_the_box_of_values_never_covers_a_point(opened, width):
    page = opened(rendered(STUDY), width=width)
    section = figure(page, "first")
    picture = section.locator(".canvas svg").first
    picture.focus()
    page.keyboard.press("Home")
    for _ in range(STUDY.rounds):
        tip = section.locator(".tip").first.bounding_box()
        for dot in section.locator(".canvas").first.locator("circle.dot").all():
            point = dot.bounding_box()
            apart = (
                point["x"] + point["width"] <= tip["x"]
                or tip["x"] + tip["width"] <= point["x"]
                or point["y"] + point["height"] <= tip["y"]
                or tip["y"] + tip["height"] <= point["y"]
            )
            assert apart, (point, tip)
        page.keyboard.press("ArrowRight")


def test_the_first_screen_is_a_sentence_and_a_figure(opened):
    study = studies.paper().only(["figure1", "beyond-single-class"])
    page = opened(rendered(study))
    found = page.locator("header .found")
    assert "with this project’s code and memory" in found.inner_text()
    box = figure(page, "beyond-single-class").locator(".chart").first.bounding_box()
    assert box["y"] + box["height"] < 900
    assert figure(page, "figure1").is_visible()


@pytest.mark.parametrize("width", [360, 768])
def test_page_never_scrolls_sideways(opened, width):
    page = opened(rendered(STUDY, CLAIMS), width=width)
    page.locator(".claims summary").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_figures_are_there_without_scripts(opened):
    page = opened(
        rendered(STUDY).replace('src="figures/', 'src="data:,'), java_script_enabled=False
    )
    assert page.locator("noscript img").count() == len(STUDY.figures)
    assert figure(page, "second").is_visible()


@pytest.mark.parametrize("kind", definition.KINDS)
def test_smallest_study_is_drawn(opened, kind):
    line = {"label": "only", "c": 0.5, "d": 1}
    content = {"name": "one", "kind": kind, "partition": "iid", "p": 0.5, "curves": [line]}
    study = studies.parse(
        {"name": "small", "clients": 2, "rounds": 1, "runs": 1, "figure": [content]}
    )
    page = opened(rendered(study), width=360)
    section = figure(page, "one")
    assert "A single run" in section.inner_text()
    assert section.locator(".plot svg").first.is_visible()
    assert section.locator(".band").count() == 0
    assert page.locator("#claims").count() == 0
    assert "NaN" not in page.content()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_lines_that_share_a_label_are_told_apart(opened):
    content = {
        "name": "many", "kind": "curves", "partition": "iid", "p": 0.5,
        "curves": [{"label": "shared", "c": [0.1, 0.5], "d": 1}],
    }  # fmt: skip
    study = studies.parse({"name": "small", "rounds": 3, "runs": 2, "figure": [content]})
    section = figure(opened(rendered(study)), "many")
    labels = section.locator(".chart").first.locator(".labels button").all_inner_texts()
    assert labels == ["shared, c = 0.1", "shared, c = 0.5"]
