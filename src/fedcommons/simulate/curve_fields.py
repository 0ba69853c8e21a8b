"""The table of a curve's fields: what each may be, when it has a use, and how it is worded.

What reads, checks, tabulates or words a field goes by its `Setting` here; its type and its default
stand in `Curve`. Those of a clock, of asking and of the server's step are in `clock_fields`,
`asking_fields` and `server_fields`; this table takes them in.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedcommons import checks
from fedcommons.coding import CODES
from fedcommons.estimators import ESTIMATORS
from fedcommons.partition import PARTITIONS
from fedcommons.sharing import SCHEMES
from fedcommons.simulate import models
from fedcommons.simulate.algorithms import ALGORITHMS, Algorithm
from fedcommons.simulate.algorithms.algorithm import estimated
from fedcommons.simulate.asking_fields import ASKING
from fedcommons.simulate.clock_fields import CLOCK, clocked
from fedcommons.simulate.server_fields import SERVER
from fedcommons.simulate.settings import (
    ALL,
    Setting,
    Values,
    named_in,
    one_of,
    probability,
    short_name,
    spoken,
)

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve

# The estimator of work that has one of its own: the latest of all chunks; without bias, a random
# one of them; and without memory.
OF_WORK = {"chunk": "latest", "sagachunk": "memory", "anytime": "coded_sum"}
STRAGGLERS = ("bernoulli", "markov", "recorded")


def _size(name: str, value: object) -> None:
    if value is not None:
        checks.integer(name, value, low=1)


def _algorithm(values: Values) -> Algorithm:
    return ALGORITHMS[values["algorithm"]]


def _estimates(values: Values) -> bool:
    """Whether the code and the estimator are the study's choice."""
    return _algorithm(values).estimators


def _copies(values: Values) -> bool:
    return _algorithm(values).sharing not in ("none", "proportion")


def _assumes_p(values: Values) -> bool:
    """Whether it matters which p the server assumes."""
    algorithm = _algorithm(values)
    splits = algorithm.estimators and CODES[values["code"]].needs_p
    scales = algorithm.weigh is estimated and ESTIMATORS[values["estimator"]].needs_p
    return splits or scales


def setting_words(curve: Curve) -> str:
    """How labels fall on clients."""
    return PARTITIONS[curve.partition].caption.format(alpha=curve.alpha)


def sharing_words(curve: Curve) -> str:
    """What is shared, for a label."""
    if curve.procedure.sharing == "none":
        return ""
    if curve.procedure.sharing == "proportion":
        return f"c = {curve.proportion:g}"
    if not (curve.proportion and curve.copies):
        return "no sharing"
    return f"({curve.proportion:g}, {curve.copies})"


def sharing_caption(curve: Curve) -> str:
    """What is shared, in full."""
    if curve.copies and curve.proportion:
        return f"c = {curve.proportion:g}, d = {curve.copies}"
    if curve.proportion and curve.procedure.sharing == "proportion":
        return f"c = {curve.proportion:g}"
    return "" if ESTIMATORS[curve.estimator].needs_everybody else "no sharing"


def assumed_words(curve: Curve) -> str:
    return "" if curve.assumed_prob is None else f"p taken for {curve.assumed_prob:g}"


FIELDS: dict[str, Setting] = {
    # How labels fall on clients: iid, single-class, dirichlet, or somebody else's.
    "partition": Setting(
        "partition",
        named_in(PARTITIONS),
        of_paper=True,
        rank=1,
        tells=setting_words,
        caption=setting_words,
    ),
    # The concentration of a partition that has one, as Dirichlet's.
    "alpha": Setting(
        "alpha",
        checks.positive,
        lambda values: PARTITIONS[values["partition"]].needs_alpha,
        "a partition with a concentration, such as dirichlet",
        needed=True,
        of_paper=True,
    ),
    # p, of all clients or their mean.
    "straggler_prob": Setting(
        "p",
        probability,
        lambda values: not clocked(values),
        "rounds: a clock says who is late",
        of_paper=True,
        rank=99,
        tells=lambda curve: f"p = {curve.straggler_prob:g}",
    ),
    # c.
    "proportion": Setting(
        "c",
        partial(checks.real, low=0, high=1),
        lambda values: _algorithm(values).sharing != "none",
        "an algorithm that shares examples",
        of_paper=True,
        rank=3,
        label=sharing_words,
        tells=lambda curve: f"c = {curve.proportion:g}",
        caption=sharing_caption,
    ),
    # d.
    "copies": Setting(
        "d",
        partial(checks.integer, low=0),
        _copies,
        "an algorithm that copies examples to some others",
        of_paper=True,
        rank=4,
        tells=lambda curve: f"d = {curve.copies}",
    ),
    "code": Setting(
        "code",
        named_in(CODES),
        _estimates,
        "an algorithm with codes and estimators, coded_gd or coded_fedavg",
        of_paper=True,
        rank=6,
        label=lambda curve: "" if curve.code == "equal-split" else short_name(curve.code),
        tells=lambda curve: short_name(curve.code),
        caption=lambda curve: CODES[curve.code].caption,
    ),
    "estimator": Setting(
        "estimator",
        named_in(ESTIMATORS),
        _estimates,
        "an algorithm with codes and estimators, coded_gd or coded_fedavg",
        of_paper=True,
        rank=7,
        label=lambda curve: "" if curve.estimator == "coded_sum" else spoken(curve.estimator),
        tells=lambda curve: spoken(curve.estimator),
        caption=lambda curve: ESTIMATORS[curve.estimator].caption,
    ),
    # Whether memory starts from everybody's answer at the initial model.
    "warm": Setting(
        "warm",
        checks.boolean,
        lambda values: _estimates(values) and ESTIMATORS[values["estimator"]].remembers,
        "an estimator that remembers, such as memory",
        of_paper=True,
        rank=8,
        label=lambda curve: "warm" if curve.warm else "",
        tells=lambda curve: "warm" if curve.warm else "cold",
    ),
    # eta in the first round.
    "learning_rate": Setting(
        "learning_rate",
        partial(checks.real, low=0),
        of_paper=True,
        rank=31,
        label=lambda curve: f"η {curve.learning_rate:g}",
        tells=lambda curve: f"η = {curve.learning_rate:g}",
    ),
    # The factor of eta from one round to the next.
    "decay": Setting(
        "decay",
        partial(checks.real, low=0),
        of_paper=True,
        rank=32,
        label=lambda curve: f"decay {curve.decay:g}",
        tells=lambda curve: f"decay = {curve.decay:g}",
    ),
    # Bernoulli, as in the paper; markov; or recorded.
    "stragglers": Setting(
        "stragglers",
        partial(one_of, STRAGGLERS),
        lambda values: not clocked(values),
        "rounds: a clock says who is late",
        rank=9,
        tells=lambda curve: curve.stragglers,
    ),
    # Rounds that an absence of markov lasts on average.
    "mean_absence": Setting(
        "mean_absence",
        partial(checks.real, low=1),
        lambda values: values["stragglers"] == "markov",
        "the markov stragglers",
        needed=True,
        rank=25,
        tells=lambda curve: f"absences of {curve.mean_absence:g}",
        caption=lambda curve: (
            f"absences of {curve.mean_absence:g} rounds on average" if curve.mean_absence else ""
        ),
    ),
    # The p that the server assumes, if it is wrong about it; None if it knows the p_i.
    "assumed_prob": Setting(
        "assumed_p",
        probability,
        _assumes_p,
        "an estimator or a code that needs p",
        rank=36,
        label=assumed_words,
        tells=lambda curve: assumed_words(curve) or "known p",
        caption=lambda curve: (
            "" if curve.assumed_prob is None else f"the server takes p for {curve.assumed_prob:g}"
        ),
    ),
    "algorithm": Setting(
        "algorithm",
        named_in(ALGORITHMS),
        rank=2,
        label=lambda curve: spoken(curve.algorithm),
        tells=lambda curve: short_name(curve.algorithm),
        caption=lambda curve: (
            ""
            if curve.algorithm == "coded_gd"
            else f"{short_name(curve.algorithm)} ({curve.procedure.source})"
        ),
    ),
    # softmax, as in the paper; mlp; cnn; or the import path of a torch module.
    "model": Setting(
        "model",
        lambda _name, value: models.check_name(value),
        rank=21,
        tells=lambda curve: curve.model,
        caption=lambda curve: "" if curve.model == "softmax" else f"model {curve.model}",
    ),
    # Steps that a client takes in a round.
    "local_steps": Setting(
        "local_steps",
        partial(checks.integer, low=1),
        rank=22,
        label=lambda curve: f"steps {curve.local_steps}" if curve.procedure.several_steps else "",
        tells=lambda curve: f"{curve.local_steps} local steps",
        caption=lambda curve: f"{curve.local_steps} local steps" if curve.local_steps > 1 else "",
    ),
    # Examples of a client in a step; None for all of them.
    "batch_size": Setting(
        "batch_size",
        _size,
        word_for_none=ALL,
        rank=23,
        label=lambda curve: f"batch {curve.batch_size}" if curve.batch_size else "full batch",
        tells=lambda curve: (
            f"batches of {curve.batch_size}" if curve.batch_size else "full batches"
        ),
        caption=lambda curve: f"batches of {curve.batch_size}" if curve.batch_size else "",
    ),
    **ASKING,
    # How strongly fedprox pulls towards the server's model.
    "mu": Setting(
        "mu",
        partial(checks.real, low=0),
        lambda values: "mu" in _algorithm(values).uses,
        "an algorithm that has it, such as fedprox",
        to_be_written="0 makes it fedavg",
        rank=34,
        label=lambda curve: f"μ {curve.mu:g}" if "mu" in curve.procedure.uses else "",
        tells=lambda curve: f"μ = {curve.mu:g}",
        caption=lambda curve: f"μ = {curve.mu:g}" if curve.mu else "",
    ),
    # How far the p_i of the first and the last client are from p.
    "prob_spread": Setting(
        "p_spread",
        partial(checks.real, low=0),
        lambda values: values["stragglers"] != "recorded" and not clocked(values),
        "stragglers that are drawn",
        rank=35,
        label=lambda curve: f"p ± {curve.prob_spread:g}" if curve.prob_spread else "",
        tells=lambda curve: f"p ± {curve.prob_spread:g}" if curve.prob_spread else "the same p",
        caption=lambda curve: (
            f"clients’ p spread over ± {curve.prob_spread:g}" if curve.prob_spread else ""
        ),
    ),
    # The file of recorded absences.
    "trace": Setting(
        "trace",
        applies=lambda values: values["stragglers"] == "recorded",
        belongs_to="the recorded stragglers",
        needed=True,
        rank=26,
        tells=lambda curve: f"absences of {Path(curve.trace).name}" if curve.trace else "drawn",
        caption=lambda curve: (
            f"absences as recorded in {Path(curve.trace).name}" if curve.trace else ""
        ),
    ),
    # The digest of its content, once it has been read.
    "trace_digest": Setting(None),
    # Who gets the copies: randomised, as in the paper; per-client; or optimal.
    "scheme": Setting(
        "scheme",
        named_in(SCHEMES),
        lambda values: _algorithm(values).sharing == "proportion-and-copies",
        "an algorithm that copies a proportion of the examples, coded_gd or coded_fedavg",
        rank=5,
        label=lambda curve: "" if curve.scheme == "randomised" else short_name(curve.scheme),
        tells=lambda curve: f"{short_name(curve.scheme)} sharing",
        caption=lambda curve: SCHEMES[curve.scheme].caption,
    ),
    **SERVER,
    **CLOCK,
}
