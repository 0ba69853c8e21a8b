"""What a study of one's own found, as a section of its page."""

from __future__ import annotations

from fedcommons.figures.markup import Markup, joined, markup
from fedcommons.metrics import Metric
from fedcommons.simulate.ranking import Rank, Setting
from fedcommons.simulate.summary import Summary

SECTION = """<section class="lead" id="found" aria-labelledby="found-title">
<h2 id="found-title">What was found</h2>
<ul>$sentences</ul>
<details open><summary>All settings</summary>
<p>
  $metric after the last round, the best line of each setting first. Lines are compared run by run,
  on the same data and with the same clients missing; ± is half of a 95 % confidence interval.
</p>
<div class="scroll" tabindex="0" role="group" aria-label="Ranking of the lines">
<table class="ranks"><thead><tr>
<th scope="col">line</th><th scope="col">figure</th><th scope="col">p</th>
<th scope="col">$column</th><th scope="col">behind the best</th>
</tr></thead><tbody>$rows</tbody></table></div>
</details></section>"""
ROW = "<tr><td>$label</td><td>$figure</td><td>$p</td><td>$reached</td><td>$behind</td></tr>"


def summary_section(summary: Summary, main: Metric) -> Markup:
    """Empty where there was nothing to compare."""
    if not summary.settings:
        return Markup()
    words = main.heading if main.is_proportion else f"{main.heading} ({main.direction})"
    return markup(
        SECTION,
        metric=words.removeprefix("Test ").capitalize() if summary.metric == "accuracy" else words,
        column=main.title.removeprefix("test "),
        sentences=joined(markup("<li>$words</li>", words=words) for words in summary.sentences),
        rows=joined(_rows(setting, main) for setting in summary.settings),
    )


def _rows(setting: Setting, main: Metric) -> Markup:
    place = {"figure": setting.figure, "p": f"{setting.straggler_prob:g}"}
    found = [
        markup(
            ROW,
            **place,
            label=_label(rank),
            reached=_with_half(main, rank.mean, rank.half),
            behind="" if k == 0 else _with_half(main, rank.behind, rank.behind_half),
        )
        for k, rank in enumerate(setting.ranks)
    ]
    found += [
        markup(ROW, **place, label=label, reached="diverged", behind="") for label in setting.lost
    ]
    return joined(found)


def _label(rank: Rank) -> Markup:
    return markup("<b>$label</b>" if rank.as_good else "$label", label=rank.label)


def _with_half(main: Metric, value: float | None, half: float | None) -> str:
    if value is None:
        return "–"
    return main.with_half(value, half)
