"""`fedcommons plan`: what c and d buy for your federation."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fedcommons.cli import plan_sites, plan_table
from fedcommons.cli.option_records import command
from fedcommons.cli.plan_options import (
    ChoiceOptions,
    OutputOptions,
    PriceOptions,
    TargetOptions,
    TimeOptions,
    WhoOptions,
    numbers,
    one_or_each,
    refuse_contradictions,
    whole_numbers,
)
from fedcommons.errors import ArgumentError

if TYPE_CHECKING:
    from fedcommons.checks import IntArray
    from fedcommons.datasets import Dataset
    from fedcommons.placement import Placement
    from fedcommons.plan import (
        Option,
        Outcome,
        Prices,
        Question,
        Recommendation,
        Sites,
        Targets,
    )
    from fedcommons.theory.expected_variance import Geometry


@command
def plan(
    ctx: typer.Context,
    who: WhoOptions,
    choice: ChoiceOptions,
    price: PriceOptions,
    time: TimeOptions,
    target: TargetOptions,
    output: OutputOptions,
) -> None:
    """What sharing buys, for each c and d: evenness, variance, records moved, compute, hours.

    Example: fedcommons plan --partition dirichlet --alpha 0.1 --p 0.7 --max-variance 0.5
    """
    from fedcommons import plan as planner

    given = {name for name in ctx.params if _is_given(ctx, name)}
    refuse_contradictions(given)
    targets = planner.Targets(target.max_heterogeneity, target.max_variance)
    prices = planner.Prices(price.price_record, price.price_compute, price.rounds)
    _check_plot(output)
    dataset = _dataset(output, target)
    sites, there = _sites(who, given, dataset, output.seed)
    geometry = (
        planner.pilot_geometry(dataset) if dataset else planner.assumed_geometry(sites.n_classes)
    )
    copies = sorted(set(whole_numbers("copies", choice.copies)))
    if "copies" not in given:
        copies = [d for d in copies if d < sites.n_sites]
    parts = numbers("proportions", choice.proportions)
    found = planner.options(
        sites,
        geometry,
        copies=copies,
        proportions=parts,
        code=choice.code,
        prices=prices,
    )
    placed = None
    if there:
        placed = planner.as_placed(*there, sites, geometry, code=choice.code, prices=prices)
    question = _question(
        sites, geometry, prices, choice.code, time, dataset, max(copies), output.seed
    )
    if output.page is not None:
        from fedcommons.figures import decision  # matplotlib is slow to import

        decision.check(question, output.page)
    taken = planner.recommend(found, targets)
    needed: dict[Option, float] = {}
    timed: dict[Option, Outcome] = {}
    if question.timing is not None:
        question, timed = _timed(question, found, dataset, target.accuracy, time.deadline, output)
        taken = _by_hours(timed, targets)
    elif dataset is not None and target.accuracy is not None and taken.option is not None:
        taken, needed = _by_pilot(
            sites, dataset, found, targets, target.accuracy, choice.code, price.rounds, output.seed
        )
    about: dict[str, Any] = {
        "sites": sites.n_sites,
        "examples": sites.n_examples,
        "classes": list(sites.classes) or [str(label) for label in range(sites.n_classes)],
        "left_out": list(sites.left_out),
        "code": choice.code,
        "geometry": f"pilot on {output.data}"
        if output.data
        else "assumed: inputs as alike as MNIST's",
        "times": question.timing.words if question.timing else None,
        "course": question.course.words,
    }
    span = None
    if not output.data and taken.option is not None and taken.option.copies:
        span = planner.for_other_data(sites, taken.option, choice.code)
    alone = next((one for option, one in timed.items() if not option.copies), None)
    said = planner.sentence(
        taken, outcomes=timed, alone=alone, span=span, error=question.course.error
    )
    unsaid = set(sites.assumed) if who.sites else {"p", "share"} - given
    about["assumed"] = planner.assumptions(
        question, span, p_assumed="p" in unsaid,
        c_assumed=bool(unsaid & {"c", "share"}) and who.placement is None,
    )  # fmt: skip
    if question.timing is not None and taken.option is not None:
        share = planner.shared(question, taken.option.part, int(taken.option.copies))
        seconds, arrives = planner.if_remembered(question, share)
        late = {"deadline": seconds, "arrives": arrives, "hours": None}
        if dataset is not None and target.accuracy is not None:
            late["hours"] = _hours_if_remembered(
                question, taken.option, seconds, dataset, target.accuracy, timed, output.seed
            )
        about["if_late_answers_are_remembered"] = late
    by_site = _by_site(question, taken.option, timed)
    if output.page is not None:
        _write_page(output.page, question, found, taken, said, timed, about["assumed"])
    _show(plan_table.Plan(found, taken, said, placed, needed, timed, by_site, about), output)


def _is_given(ctx: typer.Context, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _question(
    sites: Sites,
    geometry: Geometry,
    prices: Prices,
    code: str,
    time: TimeOptions,
    dataset: Dataset | None,
    copies: int,
    seed: int,
) -> Question:
    """All that is known of the sites, their times too."""
    from fedcommons import plan as planner

    timing = None
    if time.delays is not None:
        adds = time.multiply_adds
        if adds is None and dataset is not None:  # of softmax regression
            adds = 2.0 * (dataset.inputs("train", [0]).shape[1] + 1) * dataset.n_classes
        timing = planner.read_timing(
            time.delays, sites, copies=copies, multiply_adds=adds, seed=seed
        )
    course = planner.assumed_course(max(1, prices.rounds))
    return planner.Question(sites, geometry, prices, course, timing, code)


def _timed(
    question: Question,
    found: list[Option],
    dataset: Dataset | None,
    accuracy: float | None,
    deadline: float | None,
    output: OutputOptions,
) -> tuple[Question, dict[Option, Outcome]]:
    """What every option brings at its deadline; a pilot says how many rounds, if there are data."""
    from fedcommons import plan as planner

    def outcomes(question: Question) -> dict[Option, Outcome]:
        share = {one: planner.shared(question, one.part, int(one.copies)) for one in found}
        return {one: planner.at_deadline(question, share[one], deadline) for one in found}

    timed = outcomes(question)
    if dataset is None or accuracy is None:
        return question, timed
    tried = [(one.part, outcome) for one, outcome in timed.items()]
    for one in (found[0], found[-1]):  # other deadlines, for other noise
        share = planner.shared(question, one.part, int(one.copies))
        tried += [(one.part, outcome) for outcome in planner.at_many_deadlines(question, share)]
    course = planner.measured_course(
        question, tried, dataset, accuracy, max_rounds=question.prices.rounds, seed=output.seed
    )
    question = replace(question, course=course)
    return question, outcomes(question)


def _hours_if_remembered(
    question: Question,
    option: Option,
    deadline: float,
    dataset: Dataset,
    accuracy: float,
    timed: dict[Option, Outcome],
    seed: int,
) -> float | None:
    """The hours of a pilot under the clock; None if it needs over twice as many as without."""
    from fedcommons import plan as planner

    hours = timed[option].hours
    if hours is None or not 0 < hours < float("inf"):
        return None
    found = planner.seconds_if_remembered(
        question, option.part, int(option.copies), deadline, dataset, accuracy,
        seconds=2 * 3600 * hours, seed=seed,
    )  # fmt: skip
    return found / 3600 if found < float("inf") else None


def _by_site(
    question: Question, option: Option | None, timed: dict[Option, Outcome]
) -> list[dict[str, Any]]:
    """What the option means for each site; nothing for many sites."""
    from fedcommons import plan as planner

    if option is None or question.sites.n_sites > plan_sites.MOST_SITES:
        return []
    share = planner.shared(question, option.part, int(option.copies))
    outcome = timed.get(option) or planner.outcome(question, share)
    kept = planner.if_it_kept(question, option.part, int(option.copies), outcome.deadline)
    return plan_sites.records(question.sites.called, outcome, kept)


def _write_page(
    path: Path,
    question: Question,
    found: list[Option],
    taken: Recommendation,
    said: str,
    timed: dict[Option, Outcome],
    assumed: list[str],
) -> None:
    from fedcommons import provenance
    from fedcommons.errors import ResultsError
    from fedcommons.figures import decision

    command = shlex.join(provenance.command_line())
    page = decision.render(
        decision.Decision(question, found, taken.option, said, timed, assumed, command)
    )
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        raise ResultsError(f"{path} cannot be written: {error}") from None


def _by_hours(timed: dict[Option, Outcome], targets: Targets) -> Recommendation:
    """What to take by the hours until the target."""
    from fedcommons import plan as planner

    fit = targets.reached(list(timed))
    if not fit:
        return planner.recommend(list(timed), targets)
    hours = {one: float("inf") if (h := timed[one].hours) is None else h for one in fit}
    return planner.recommend_by_hours(hours, targets)


def _check_plot(output: OutputOptions) -> None:
    if output.plot is not None:
        from fedcommons.figures.plan import check_path  # matplotlib is slow to import

        check_path(output.plot)


def _dataset(output: OutputOptions, target: TargetOptions) -> Dataset | None:
    if output.data is not None:
        from fedcommons.simulate.studies import data_of

        return data_of(output.data, seed=output.seed)
    if target.accuracy is not None:
        raise ArgumentError("data must be given for an accuracy: mnist or a dataset file")
    return None


def _sites(
    who: WhoOptions, given: set[str], dataset: Dataset | None, seed: int
) -> tuple[Sites, tuple[Placement, IntArray] | None]:
    """The sites, and the placement with its labels if there is one."""
    from fedcommons import plan as planner
    from fedcommons.placement import Placement

    chance, most = one_or_each("p", who.p), one_or_each("share", who.share)
    if who.sites is not None:
        sites = planner.read_sites(
            who.sites,
            straggler_prob=chance if "p" in given else None,
            shareable=most if "share" in given else None,
        )
        return sites, None
    if who.placement is not None and who.labels is not None:
        placement, n_classes = Placement.load(who.placement), dataset.n_classes if dataset else None
        labels = planner.read_labels(
            who.labels, n_examples=placement.n_examples, n_classes=n_classes
        )
        sites = planner.sites_of_placement(
            placement,
            labels,
            n_classes=n_classes,
            straggler_prob=chance,
            shareable=most if "share" in given else None,
        )
        return sites, (placement, labels)
    if who.partition == "site":
        return _natural_sites(given, dataset, chance, most), None
    sites = planner.sites_of(
        who.partition,
        n_sites=who.clients,
        n_classes=who.classes,
        class_size=who.class_size,
        alpha=who.alpha,
        straggler_prob=chance,
        shareable=most,
        seed=seed,
    )
    return sites, None


def _natural_sites(
    given: set[str],
    dataset: Dataset | None,
    chance: float | list[float],
    most: float | list[float],
) -> Sites:
    """The sites that the data come from."""
    from fedcommons import plan as planner

    if dataset is None:
        raise ArgumentError("data must be given for the partition site: they say which sites")
    for name in ("clients", "classes", "class_size", "alpha"):
        if name in given:
            option = name.replace("_", "-")
            raise ArgumentError(f"{option} must not be given with the partition site")
    return planner.sites_of_dataset(dataset, straggler_prob=chance, shareable=most)


def _by_pilot(
    sites: Sites,
    dataset: Dataset,
    found: list[Option],
    targets: Targets,
    accuracy: float,
    code: str,
    rounds: int,
    seed: int,
) -> tuple[Recommendation, dict[Option, float]]:
    """What to take by the rounds that options need to an accuracy, and these rounds."""
    from fedcommons import plan as planner

    tried = planner.not_beaten(targets.reached(found))
    takes = planner.rounds_to_accuracy(
        sites, tried, dataset, accuracy, code=code, max_rounds=rounds, seed=seed
    )
    needed = dict(zip(tried, takes, strict=True))
    return planner.recommend_by_rounds(needed, accuracy, rounds, targets), needed


def _show(found: plan_table.Plan, output: OutputOptions) -> None:
    if output.as_json:
        found.say_json()
    else:
        found.print()
    if output.plot is not None:
        from fedcommons.figures.plan import draw_plan

        draw_plan(found.options, found.taken.option, output.plot)
