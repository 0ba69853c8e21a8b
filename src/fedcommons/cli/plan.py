"""`fedcommons plan`: what c and d buy for your federation."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

if TYPE_CHECKING:
    from fedcommons.plan import Option, Recommendation

MEMORY = (
    "With memory the first round's variance is the one above, or 0 if it starts warm; later it is "
    "that of how much answers change between rounds, which a plan cannot predict: try it with "
    "fedcommons simulate or fedcommons federate run."
)


def plan(
    sites: Annotated[
        Path | None,
        typer.Option(help="CSV, a line for each site: site, p, c, and a count for each class."),
    ] = None,
    clients: Annotated[int, typer.Option(help="N, without a file of sites.")] = 10,
    classes: Annotated[int, typer.Option(help="L, without a file of sites.")] = 10,
    class_size: Annotated[int, typer.Option(help="Examples of each class.")] = 30,
    partition: Annotated[
        str, typer.Option(help="How classes lie: single-class, dirichlet or iid.")
    ] = "single-class",
    alpha: Annotated[float | None, typer.Option(help="Of a Dirichlet partition.")] = None,
    p: Annotated[str, typer.Option(help="How often a site is missing: one, or one each.")] = "0.5",
    share: Annotated[str, typer.Option(help="c at most: one, or one for each site.")] = "0.5",
    copies: Annotated[str, typer.Option(help="Values of d, with commas between.")] = "0,1,2,3,5,8",
    proportions: Annotated[
        str, typer.Option(help="Parts of what may be shared, with commas between.")
    ] = "0.2,0.4,0.6,0.8,1",
    code: Annotated[
        str, typer.Option(help="equal-split, owner-corrected or reliability-split.")
    ] = "equal-split",
    price_record: Annotated[float, typer.Option(help="Of moving a record.")] = 1.0,
    price_compute: Annotated[float, typer.Option(help="Of computing on a record once.")] = 0.0,
    rounds: Annotated[int, typer.Option(help="Rounds that will be trained.")] = 50,
    max_heterogeneity: Annotated[
        float | None, typer.Option(help="Target: heterogeneity after sharing.")
    ] = None,
    max_variance: Annotated[
        float | None, typer.Option(help="Target: variance relative to no sharing.")
    ] = None,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Target: an accuracy, in as few rounds as it takes (trains a pilot)."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Where gradients' geometry comes from: mnist, or a dataset file."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw cost against variance: PNG, SVG.")] = None,
    seed: Annotated[int, typer.Option(help="Of random partitions and the pilot.")] = 0,
    as_json: AsJson = False,
) -> None:
    """What sharing buys: heterogeneity, variance, records moved and compute for each c and d.

    Example: fedcommons plan --partition dirichlet --alpha 0.1 --p 0.7 --max-variance 0.5
    """
    from fedcommons import plan as planner
    from fedcommons.simulate.runner import load_dataset

    if sites is not None:
        who = planner.read_sites(sites)
    else:
        who = planner.sites_of(
            partition,
            n_sites=clients,
            n_classes=classes,
            class_size=class_size,
            alpha=alpha,
            straggler_prob=_one_or_each("p", p),
            shareable=_one_or_each("share", share),
            seed=seed,
        )
    dataset = load_dataset(data) if data else None
    if dataset is None and accuracy is not None:
        raise ArgumentError("data must be given for an accuracy: mnist or a dataset file")
    n_classes = who.counts.shape[2]
    geometry = planner.pilot_geometry(dataset) if dataset else planner.assumed_geometry(n_classes)
    wanted = sorted({int(d) for d in _numbers("copies", copies)})
    if sites is not None or copies == "0,1,2,3,5,8":
        wanted = [d for d in wanted if d < who.n_sites]
    found = planner.options(
        who,
        geometry,
        copies=wanted,
        proportions=_numbers("proportions", proportions),
        code=code,
        prices=planner.Prices(price_record, price_compute, rounds),
    )
    taken = planner.recommend(found, heterogeneity=max_heterogeneity, variance=max_variance)
    needed: dict[int, float] = {}
    if accuracy is not None and dataset is not None:
        front = [k for k, option in enumerate(found) if option.best]
        needed = dict(
            zip(
                front,
                planner.rounds_to_accuracy(
                    who,
                    [found[k] for k in front],
                    dataset,
                    accuracy,
                    code=code,
                    max_rounds=rounds,
                    seed=seed,
                ),
                strict=True,
            )
        )
        taken = _fewest_rounds(found, needed, accuracy, rounds)
    if plot is not None:
        from fedcommons.figures.plan import draw_plan  # matplotlib is slow to import

        draw_plan(found, taken.option, plot)
    about = {
        "sites": who.n_sites,
        "examples": who.n_examples,
        "code": code,
        "geometry": f"pilot on {data}" if data else "assumed: inputs as alike as MNIST's",
    }
    _print(found, taken, needed, about, float(who.shareable.mean()), as_json)


def _fewest_rounds(
    found: list[Option], needed: dict[int, float], accuracy: float, rounds: int
) -> Recommendation:
    from fedcommons.plan import Recommendation

    best = min(needed.values())
    if math.isinf(best):
        return Recommendation(None, f"no option reaches accuracy {accuracy:g} in {rounds} rounds")
    fit = [found[k] for k, n in needed.items() if n <= best * 1.05]
    chosen = min(fit, key=lambda option: option.cost)
    return Recommendation(
        chosen, f"the cheapest that reaches accuracy {accuracy:g} within 5 % of {best:g} rounds"
    )


def _print(
    found: list[Option],
    taken: Recommendation,
    needed: dict[int, float],
    about: dict[str, Any],
    shareable: float,
    as_json: bool,
) -> None:
    if as_json:
        rows = [
            {**asdict(option), **({"rounds_to_accuracy": needed.get(k)} if needed else {})}
            for k, option in enumerate(found)
        ]
        for row in rows:
            if row.get("rounds_to_accuracy") == math.inf:
                row["rounds_to_accuracy"] = None
        chosen = asdict(taken.option) if taken.option else None
        record = {**about, "options": rows, "recommended": chosen, "reason": taken.reason}
        typer.echo(json.dumps({**record, "memory": MEMORY}, indent=2, allow_nan=False))
        return
    table = Table(title=f"{about['sites']} sites, {about['code']}, {about['geometry']}")
    heads = ["c", "d", "heterogeneity", "variance", "vs IID", "moved", "compute", "cost", ""]
    for name in [*heads[:-1], *(["rounds"] if needed else []), ""]:
        table.add_column(name, justify="right")
    for k, option in enumerate(found):
        sign = "◀ take this" if option == taken.option else "·" if option.best else ""
        rounds = [f"{needed[k]:g}" if k in needed else ""] if needed else []
        table.add_row(
            f"{option.proportion * shareable:.3g}",
            str(option.copies),
            f"{option.heterogeneity:.4f}",
            f"{option.variance:.3f}",
            f"{option.variance_iid:.2f}",
            f"{option.moved:,.0f}",
            f"+{option.extra_compute:.0%}",
            f"{option.cost:,.0f}",
            *rounds,
            sign,
        )
    console = Console()
    console.print(table)
    console.print(
        "variance: of the first round's estimate, relative to no sharing; · not beaten in cost and "
        "variance at once; c is the mean over sites.",
        style="dim",
    )
    if taken.option:
        option = taken.option
        console.print(
            f"Take c = {option.proportion * shareable:.3g}, d = {option.copies}: {taken.reason}."
        )
    else:
        console.print(f"Nothing fits: {taken.reason}.")
    console.print(MEMORY, style="dim")


def _numbers(name: str, text: str) -> list[float]:
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{name} must be numbers with commas between, got {text!r}") from None
    return found


def _one_or_each(name: str, text: str) -> float | list[float]:
    found = _numbers(name, text)
    return found[0] if len(found) == 1 else found
