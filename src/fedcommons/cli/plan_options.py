"""The options of `fedcommons plan`, by what they are about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

OF_MADE_UP_SITES = ("clients", "classes", "class_size", "partition", "alpha")


@dataclass(frozen=True, slots=True)
class WhoOptions:
    """Which sites there are, what they have, and how often they are missing."""

    sites: Annotated[
        Path | None,
        typer.Option(help="CSV, a line for each site: site, p, c, and a count for each class."),
    ] = None
    placement: Annotated[
        Path | None, typer.Option(help="A placement that is there, with --labels.")
    ] = None
    labels: Annotated[
        Path | None,
        typer.Option(help="Classes of the placement's examples: .npy, or a line for each."),
    ] = None
    clients: Annotated[int, typer.Option(help="N, without a file.")] = 10
    classes: Annotated[int, typer.Option(help="L, without a file.")] = 10
    class_size: Annotated[int, typer.Option(help="Examples of each class, without a file.")] = 30
    partition: Annotated[
        str,
        typer.Option(
            help="How classes lie, without a file: single-class, dirichlet, iid, or site: as in "
            "--data."
        ),
    ] = "single-class"
    alpha: Annotated[float | None, typer.Option(help="Of a Dirichlet partition.")] = None
    p: Annotated[str, typer.Option(help="How often a site is missing: one, or one each.")] = "0.5"
    share: Annotated[str, typer.Option(help="c at most: one, or one for each site.")] = "0.5"


@dataclass(frozen=True, slots=True)
class ChoiceOptions:
    """What is compared."""

    copies: Annotated[str, typer.Option(help="Values of d, with commas between.")] = "0,1,2,3,5,8"
    proportions: Annotated[
        str, typer.Option(help="Parts of what may be shared, with commas between.")
    ] = "0.2,0.4,0.6,0.8,1"
    code: Annotated[
        str, typer.Option(help="equal-split, owner-corrected or reliability-split.")
    ] = "equal-split"


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """What it costs."""

    price_record: Annotated[float, typer.Option(help="Of moving a record.")] = 1.0
    price_compute: Annotated[float, typer.Option(help="Of computing on a record once.")] = 0.0
    rounds: Annotated[
        int, typer.Option(help="Rounds that will be trained; hours count them without noise.")
    ] = 50


@dataclass(frozen=True, slots=True)
class TimeOptions:
    """How long sites take."""

    delays: Annotated[
        str | None,
        typer.Option(
            help="How long sites take: CSV, a line for each (site, multiply-adds or examples a "
            "second, spread, link, failures); a recording (.parquet); or coded-padded-fl."
        ),
    ] = None
    multiply_adds: Annotated[
        float | None,
        typer.Option(help="Of one example, where delays count them; 2 a parameter with --data."),
    ] = None
    deadline: Annotated[
        float | None, typer.Option(help="Seconds a round waits at most; the best one by default.")
    ] = None


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What is to be reached."""

    max_heterogeneity: Annotated[
        float | None, typer.Option(help="Target: heterogeneity after sharing.")
    ] = None
    max_variance: Annotated[
        float | None, typer.Option(help="Target: variance relative to no sharing.")
    ] = None
    accuracy: Annotated[
        float | None,
        typer.Option(help="Target: an accuracy, in as few rounds as it takes (trains a pilot)."),
    ] = None


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """What gradients look like, chance, and what is written."""

    data: Annotated[
        str | None,
        typer.Option(
            help="Where gradients' geometry comes from: mnist, heart, a dataset file, or a study "
            "file (.toml), for the data that it is on."
        ),
    ] = None
    page: Annotated[
        Path | None,
        typer.Option(help="Write an interactive page on which to decide: HTML, at most 60 sites."),
    ] = None
    plot: Annotated[Path | None, typer.Option(help="Draw cost against variance: PNG, SVG.")] = None
    seed: Annotated[int, typer.Option(help="Of random partitions and the pilot.")] = 0
    as_json: AsJson = False


def refuse_contradictions(given: set[str]) -> None:
    """Options that would be ignored beside others are refused."""
    if {"sites", "placement"} <= given:
        raise ArgumentError("sites and placement must not be given both")
    if ("labels" in given) != ("placement" in given):
        raise ArgumentError("placement and labels must be given together")
    files = given & {"sites", "placement"}
    for name in ("multiply_adds", "deadline"):
        if name in given and "delays" not in given:
            raise ArgumentError(f"{name.replace('_', '-')} must be given with delays")
    for name in OF_MADE_UP_SITES:
        if files and name in given:
            option, file = name.replace("_", "-"), files.pop()
            raise ArgumentError(f"{option} must not be given with {file}: the file says it")


def numbers(name: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(f"{name} must be numbers with commas between, got {text!r}") from None


def whole_numbers(name: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{name} must be whole numbers with commas between, got {text!r}"
        ) from None


def one_or_each(name: str, text: str) -> float | list[float]:
    found = numbers(name, text)
    return found[0] if len(found) == 1 else found
