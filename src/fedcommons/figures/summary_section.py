"""What a study of one's own found, as a section of its page."""

from __future__ import annotations

import html

from fedcommons.simulate.summary import Rank, Setting, Summary

HOW = (
    "Accuracy after the last round, the best line of each setting first. Lines are compared run by "
    "run, on the same data and with the same clients missing; ± is half of a 95 % confidence "
    "interval."
)


def summary_section(summary: Summary) -> str:
    """Empty where there was nothing to compare."""
    if not summary.settings:
        return ""
    sentences = "".join(f"<li>{html.escape(words)}</li>" for words in summary.sentences)
    rows = "".join(map(_rows, summary.settings))
    return (
        '<section class="lead" id="found" aria-labelledby="found-title">'
        f'<h2 id="found-title">What was found</h2><ul>{sentences}</ul>'
        f"<details open><summary>All settings</summary><p>{HOW}</p>"
        '<div class="scroll" tabindex="0" role="group" aria-label="Ranking of the lines">'
        '<table><thead><tr><th scope="col">figure</th><th scope="col">p</th>'
        '<th scope="col">line</th><th scope="col">accuracy</th>'
        f'<th scope="col">behind the best</th></tr></thead><tbody>{rows}</tbody></table></div>'
        "</details></section>"
    )


def _rows(setting: Setting) -> str:
    place = f"<td>{html.escape(setting.figure)}</td><td>{setting.straggler_prob:g}</td>"
    found = [
        f"<tr>{place}<td>{_label(rank)}</td><td>{_with_half(rank.mean, rank.half)}</td>"
        f"<td>{'' if k == 0 else _with_half(rank.behind, rank.behind_half)}</td></tr>"
        for k, rank in enumerate(setting.ranks)
    ]
    found += [
        f"<tr>{place}<td>{html.escape(label)}</td><td>diverged</td><td></td></tr>"
        for label in setting.lost
    ]
    return "".join(found)


def _label(rank: Rank) -> str:
    label = html.escape(rank.label)
    return f"<b>{label}</b>" if rank.as_good else label


def _with_half(value: float | None, half: float | None) -> str:
    if value is None:
        return "–"
    shown = f"{value:.3f}".replace("-", "\N{MINUS SIGN}")
    return shown if half is None else f"{shown} ± {half:.3f}"
