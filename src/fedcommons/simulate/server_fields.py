"""The fields of a curve about the server's step."""

from __future__ import annotations

from functools import partial

from fedcommons import checks, step_control, work
from fedcommons.estimators import ESTIMATORS
from fedcommons.optimizers import OPTIMIZERS
from fedcommons.simulate.algorithms import ALGORITHMS
from fedcommons.simulate.settings import Setting, Values, named_in, probability, spoken


def _optimizer_uses(constant: str, values: Values) -> bool:
    return constant in OPTIMIZERS[values["server_optimizer"]].constants


def _one_plain_step(values: Values) -> bool:
    """Whether how far answers change says how fast gradients do, and a rate how far a step goes."""
    remembers = (
        ALGORITHMS[values["algorithm"]].estimators and ESTIMATORS[values["estimator"]].remembers
    )
    whole = values["batch_size"] is None and values["local_steps"] == 1
    doing = work.parse(values["work"])
    exact = doing.kind == "full" or doing.in_chunks
    return remembers and whole and exact and values["server_optimizer"] in step_control.PLAIN


SERVER: dict[str, Setting] = {
    # The factor of the server's step.
    "server_rate": Setting(
        "server_rate",
        checks.positive,
        rank=33,
        label=lambda curve: f"server rate {curve.server_rate:g}",
        tells=lambda curve: f"server’s rate {curve.server_rate:g}",
    ),
    # Whether steps are at most as long as clients' secants allow.
    "step_control": Setting(
        "step_control",
        checks.boolean,
        _one_plain_step,
        "an estimator that remembers, the server optimizers sgd and momentum, and one step on all "
        "examples or on chunks of them",
        rank=33,
        label=lambda curve: "controlled" if curve.step_control else "",
        tells=lambda curve: "controlled steps" if curve.step_control else "steps by η alone",
        caption=lambda curve: (
            "steps are no longer than clients’ secants allow" if curve.step_control else ""
        ),
    ),
    # How the server steps: sgd, as in the paper; momentum; adam; or yogi.
    "server_optimizer": Setting(
        "server_optimizer",
        named_in(OPTIMIZERS),
        rank=10,
        label=lambda curve: (
            "" if curve.server_optimizer == "sgd" else spoken(curve.server_optimizer)
        ),
        tells=lambda curve: spoken(curve.server_optimizer),
        caption=lambda curve: OPTIMIZERS[curve.server_optimizer].caption,
    ),
    # Its constants: beta_1, beta_2 and tau.
    "server_momentum": Setting(
        "server_momentum",
        probability,
        partial(_optimizer_uses, "momentum"),
        "a server optimizer with momentum",
        rank=37,
        label=lambda curve: f"β₁ {curve.server_momentum:g}",
        tells=lambda curve: f"β₁ = {curve.server_momentum:g}",
    ),
    "second_momentum": Setting(
        "second_momentum",
        probability,
        partial(_optimizer_uses, "second_momentum"),
        "an adaptive server optimizer, adam or yogi",
        rank=38,
        label=lambda curve: f"β₂ {curve.second_momentum:g}",
        tells=lambda curve: f"β₂ = {curve.second_momentum:g}",
    ),
    "adaptivity": Setting(
        "adaptivity",
        checks.positive,
        partial(_optimizer_uses, "adaptivity"),
        "an adaptive server optimizer, adam or yogi",
        rank=39,
        label=lambda curve: f"τ {curve.adaptivity:g}",
        tells=lambda curve: f"τ = {curve.adaptivity:g}",
    ),
}
