"""The verdicts on the paper's claims, counted and one by one, the failures first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedcommons.figures.markup import Markup, joined, markup

VERDICTS = {  # a sign as well as a colour, and what it means
    "does not hold": ("✗", "fails", "the runs contradict it, at a level of 1 %"),
    "undecided": ("?", "undecided", "these runs neither show nor contradict it; more may"),
    "holds": ("✓", "holds", "the runs show it, at a level of 1 % for each of its components"),
}
LATER = "; set after a first result of the others"
SECTION = """<section id="claims" aria-labelledby="claims-title">
<h2 id="claims-title">The claims, one by one</h2>
<p>Each verdict is computed from $runs; ± is half of a 95 % interval. How verdicts are reached was
fixed before any result, and so were the claims, their statistics and what counts as equal, except
where a claim says otherwise.</p>
<table class="claims" role="table"><thead role="rowgroup"><tr role="row">
<th scope="col" role="columnheader">Verdict</th>
<th scope="col" role="columnheader">Claim</th>
<th scope="col" role="columnheader">Evidence</th></tr></thead>
<tbody role="rowgroup">$rows</tbody></table></section>"""
ROW = """<tr role="row" class="claim-row" id="claim-$id" data-verdict="$verdict">
<td role="cell">$badge</td><td role="cell"><p class="claim">$claim
<a class="link" href="#claim-$id" aria-label="Link to this claim">#</a></p>
<p class="small">$where</p></td><td role="cell"><p>$evidence</p>
<p class="small">Statistic: $statistic</p>$components</td></tr>"""
COMPONENTS = """<details><summary>$n</summary>
<div class="scroll" tabindex="0" role="group" aria-label="Components of the claim">
<table><thead><tr>$head</tr></thead><tbody>$rows</tbody></table></div></details>"""


def count(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def tally(claims: Mapping[str, Any]) -> Markup:
    """How many claims have which verdict, and what each verdict means; empty without claims."""
    if not claims["claims"]:
        return Markup()
    verdicts = [claim["verdict"] for claim in claims["claims"]]
    counts = joined(
        markup(
            '<li><a href="#claims?claims.verdict=$query"><b>$n</b> $badge</a> $meaning</li>',
            n=verdicts.count(verdict),
            query=verdict.replace(" ", "+"),
            badge=_badge(verdict),
            meaning=meaning,
        )
        for verdict, (_, _, meaning) in VERDICTS.items()
        if verdict in verdicts
    )
    what = f"{count(len(verdicts), 'claim')} of the paper and of this project, judged"
    block = '<div class="tally"><p><a href="#claims">$what</a>:</p><ul>$counts</ul></div>'
    return markup(block, what=what, counts=counts)


def _badge(verdict: str) -> Markup:
    sign, style, _ = VERDICTS[verdict]
    block = '<span class="badge $style"><span aria-hidden="true">$sign</span> $verdict</span>'
    return markup(block, style=style, sign=sign, verdict=verdict)


def claims_section(claims: Mapping[str, Any]) -> Markup:
    """A table of the claims; empty without any."""
    if not claims["claims"]:
        return Markup()
    order = list(VERDICTS)
    rows = joined(
        (
            _row(claim)
            for claim in sorted(claims["claims"], key=lambda c: order.index(c["verdict"]))
        ),
        "\n",
    )
    return markup(SECTION, runs=count(claims["runs"], "run"), rows=rows)


def _row(claim: Mapping[str, Any]) -> Markup:
    return markup(
        ROW,
        id=claim["id"],
        verdict=claim["verdict"],
        badge=_badge(claim["verdict"]),
        claim=claim["claim"],
        where=claim["where"] + ("" if claim["fixed_beforehand"] else LATER),
        evidence=claim["evidence"],
        statistic=claim["statistic"],
        components=_components(claim["components"]),
    )


def _components(components: Iterable[Mapping[str, Any]]) -> Markup:
    rows = [
        markup(
            "<tr><td>$name</td>$cells</tr>",
            name=part["name"],
            cells=joined(
                markup("<td>$v</td>", v=_digits(part[key])) for key in ("difference", "half", "z")
            ),
        )
        for part in components
    ]
    head = joined(
        markup('<th scope="col">$h</th>', h=h) for h in ("component", "difference", "±", "z")
    )
    return markup(COMPONENTS, n=count(len(rows), "component"), head=head, rows=joined(rows))


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}".replace("-", "\N{MINUS SIGN}")
