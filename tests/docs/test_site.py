"""The documentation site as `make docs` builds it, in a real browser and without a network."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.figures.test_page import browser  # noqa: F401 (a fixture)

ROOT = Path(__file__).parents[2]
SHOWN = ["index.html", "concepts/coded-gradients.html", "api/fedcommons.partition.html"]


def build(folder: Path) -> Path:
    """The site, by the command of the Makefile: warnings are errors."""
    [command] = re.findall(
        r"^\t\$\(BIN\)/python (-m sphinx .*)$", (ROOT / "Makefile").read_text(), re.M
    )
    arguments = command.replace("build/site", str(folder / "site")).split()
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


def test_the_site_is_built_without_warnings_and_every_page_fits_a_telephone(
    browser,  # noqa: F811
    tmp_path,
):
    """One test, because the site is built once: what is looked at is every page of it."""
    if importlib.util.find_spec("sphinx") is None:
        if os.environ.get("CI"):
            pytest.fail("the group docs must be installed in CI: make docs")
        pytest.skip("Sphinx is not installed, so the site was not built: make docs")
    site = build(tmp_path)
    pages = sorted(site.rglob("*.html"))
    assert {site / shown for shown in SHOWN} < set(pages)
    complaints: list[str] = []
    for width, looked_at in ((1280, [site / shown for shown in SHOWN]), (390, pages)):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "request",
            lambda asked: asked.url.startswith(("file:", "data:")) or complaints.append(asked.url),
        )
        for path in looked_at:
            page.goto(path.as_uri())
            wide = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1], (path.name, width)
        page.goto((site / SHOWN[1]).as_uri())
        formulas = page.locator("div.math math").all()
        assert len(formulas) > 5
        assert all(formula.bounding_box()["height"] > 15 for formula in formulas)
        page.goto((site / SHOWN[2]).as_uri())
        assert page.locator("dt.sig:has-text('single_class(')").count() == 1
        page.goto(f"{(site / 'search.html').as_uri()}?q=straggler")
        page.locator("ul.search li a").first.wait_for()
        page.close()
    assert complaints == []
