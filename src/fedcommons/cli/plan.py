"""`fedcommons plan`: what c and d buy for your federation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedcommons.checks import IntArray
from fedcommons.cli import plan_table
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError
from fedcommons.placement import Placement

if TYPE_CHECKING:
    from fedcommons.plan import Option


def plan(
    ctx: typer.Context,
    sites: Annotated[
        Path | None,
        typer.Option(help="CSV, a line for each site: site, p, c, and a count for each class."),
    ] = None,
    placement: Annotated[
        Path | None, typer.Option(help="A placement that is there, with --labels.")
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="Classes of the placement's examples: .npy, or a line for each."),
    ] = None,
    clients: Annotated[int, typer.Option(help="N, without a file.")] = 10,
    classes: Annotated[int, typer.Option(help="L, without a file.")] = 10,
    class_size: Annotated[int, typer.Option(help="Examples of each class, without a file.")] = 30,
    partition: Annotated[
        str, typer.Option(help="How classes lie, without a file: single-class, dirichlet or iid.")
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

    given = {name for name in ctx.params if _is_given(ctx, name)}
    _refuse_contradictions(given)
    targets = planner.Targets(max_heterogeneity, max_variance)
    prices = planner.Prices(price_record, price_compute, rounds)
    if plot is not None:
        from fedcommons.figures.plan import check_path, draw_plan  # matplotlib is slow to import

        check_path(plot)
    dataset = None
    if data is not None:
        from fedcommons.simulate.runner import load_dataset

        dataset = load_dataset(data)
    if dataset is None and accuracy is not None:
        raise ArgumentError("data must be given for an accuracy: mnist or a dataset file")
    chance, most = _one_or_each("p", p), _one_or_each("share", share)
    there: tuple[Placement, IntArray] | None = None
    if sites is not None:
        who = planner.read_sites(
            sites,
            straggler_prob=chance if "p" in given else None,
            shareable=most if "share" in given else None,
        )
    elif placement is not None and labels is not None:
        placed_now, n_classes = Placement.load(placement), dataset.n_classes if dataset else None
        found_labels = planner.read_labels(
            labels, n_examples=placed_now.n_examples, n_classes=n_classes
        )
        there = placed_now, found_labels
        who = planner.sites_of_placement(
            *there,
            n_classes=n_classes,
            straggler_prob=chance,
            shareable=most if "share" in given else None,
        )
    else:
        who = planner.sites_of(
            partition,
            n_sites=clients,
            n_classes=classes,
            class_size=class_size,
            alpha=alpha,
            straggler_prob=chance,
            shareable=most,
            seed=seed,
        )
    geometry = (
        planner.pilot_geometry(dataset) if dataset else planner.assumed_geometry(who.n_classes)
    )
    wanted = sorted(set(_whole_numbers("copies", copies)))
    if "copies" not in given:
        wanted = [d for d in wanted if d < who.n_sites]
    found = planner.options(
        who,
        geometry,
        copies=wanted,
        proportions=_numbers("proportions", proportions),
        code=code,
        prices=prices,
    )
    placed = planner.as_placed(*there, who, geometry, code=code, prices=prices) if there else None
    taken = planner.recommend(found, targets)
    needed: dict[Option, float] = {}
    if accuracy is not None and dataset is not None and taken.option is not None:
        tried = planner.not_beaten(targets.reached(found))
        takes = planner.rounds_to_accuracy(
            who, tried, dataset, accuracy, code=code, max_rounds=rounds, seed=seed
        )
        needed = dict(zip(tried, takes, strict=True))
        taken = planner.recommend_by_rounds(needed, accuracy, rounds, targets)
    about = {
        "sites": who.n_sites,
        "examples": who.n_examples,
        "classes": list(who.classes) or [str(label) for label in range(who.n_classes)],
        "code": code,
        "geometry": f"pilot on {data}" if data else "assumed: inputs as alike as MNIST's",
    }
    shown = plan_table.Plan(found, taken, placed, needed, about)
    if as_json:
        typer.echo(shown.as_json())
    else:
        shown.print()
    if plot is not None:
        draw_plan(found, taken.option, plot)


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _refuse_contradictions(given: set[str]) -> None:
    """Options that would be ignored beside others are refused."""
    if {"sites", "placement"} <= given:
        raise ArgumentError("sites and placement must not be given both")
    if ("labels" in given) != ("placement" in given):
        raise ArgumentError("placement and labels must be given together")
    files = given & {"sites", "placement"}
    for name in ("clients", "classes", "class_size", "partition", "alpha"):
        if files and name in given:
            option, file = name.replace("_", "-"), files.pop()
            raise ArgumentError(f"{option} must not be given with {file}: the file says it")


def _numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{name} must be numbers with commas between, got {text!r}") from None


def _whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{name} must be whole numbers with commas between, got {text!r}"
        ) from None


def _one_or_each(name: str, text: str) -> float | list[float]:
    found = _numbers(name, text)
    return found[0] if len(found) == 1 else found
