"""What a Flower app imports: `share`, `CodedSum` for servers; `attach`, `coded`, `evaluated` for
clients.

    # server_app.py
    federation = share(grid, context, copies=3)
    result = CodedSum(federation, estimator="memory").start(grid, initial_arrays, num_rounds=50)

    # client_app.py
    site = attach(app, data=load_site)

    @app.train(mods=[coded(site)])
    def train(message, context):
        for x, y, weight in site.batches(context): ...

    @app.evaluate(mods=[evaluated(site)])
    def evaluate(message, context): ...

`run_embedded` runs both apps in one process, for trying out and for tests.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flwr.app import ArrayRecord, Context

from fedcommons import checks
from fedcommons.errors import ArgumentError
from fedcommons.federate.site.own_data import SiteData
from fedcommons.federate.transport.client_app import attach, coded, evaluated
from fedcommons.federate.transport.node_config import (
    data_from_node_config,
    held_out_from_node_config,
)
from fedcommons.federate.transport.site_client import SiteClient
from fedcommons.stragglers import Bernoulli

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedcommons.federate.server.federation import ServerFederation
    from fedcommons.federate.transport.coded_sum import CodedSum
    from fedcommons.federate.transport.embedded_grid import run_embedded

# A deployed client is a new process for every message: it does not import the server's side.
_SERVER = {
    "CodedSum": "fedcommons.federate.transport.coded_sum",
    "ServerFederation": "fedcommons.federate.server.federation",
    "run_embedded": "fedcommons.federate.transport.embedded_grid",
}


def __getattr__(name: str) -> Any:
    if name not in _SERVER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_SERVER[name]), name)


__all__ = [
    "CodedSum",
    "ServerFederation",
    "SiteClient",
    "SiteData",
    "attach",
    "coded",
    "data_from_node_config",
    "evaluated",
    "held_out_from_node_config",
    "run_embedded",
    "settings_from",
    "share",
]


def __dir__() -> list[str]:
    return __all__


def share(
    grid: Grid,
    context: Context,
    *,
    copies: int | None = None,
    federation: str | None = None,
    state_dir: str | Path | None = None,
    sites: int | None = None,
    wait: float | None = None,
    timeout: float | None = None,
    reshare: bool | None = None,
    leave: Sequence[str] | None = None,
    seed: int | None = None,
    initial_arrays: ArrayRecord | None = None,
) -> ServerFederation:
    """Share each shareable example with `copies` other sites, once; later runs take that up.

    Args:
        copies: d, how many other sites get each shareable example.
        federation: the federation's name; sites refuse messages of another one.
        state_dir: the server's folder, an absolute path, held for this run alone.
        sites: how many sites to wait for, for at most `wait` seconds.
        timeout: how long a site may take for a message of the exchange, in seconds.
        reshare: make a new exchange although there is one.
        leave: names of sites that left for good; everybody deletes what came from them.
        seed: of the draw in a simulation; real sites draw together, whatever it is.
        initial_arrays: the model that will be trained. With it, what a round will need of the
            server's memory and disk is said before the exchange, and refused if it is not there;
            by the run config's estimator and server-optimizer, if these are in it.

    What is not given is taken from the run config: copies, federation, state-dir, sites, wait,
    timeout, reshare, leave (names with commas between), seed, max-examples (that a site may claim
    without the operator's approval).

    In a simulation all sites are there, and everything is kept in the folder `simulation` of the
    state-dir, or in one for this run alone if there is no state-dir (`transport/simulation.py`).
    """
    from fedcommons.federate.protocol.model_schema import ModelSchema
    from fedcommons.federate.server import coordinator, room
    from fedcommons.federate.server.claims import MOST_EXAMPLES
    from fedcommons.federate.server.settings import DEFAULT_ESTIMATOR
    from fedcommons.federate.transport import simulation
    from fedcommons.federate.transport.flower_arrays import model_of
    from fedcommons.federate.transport.flower_link import FlowerLink

    config = context.run_config

    def given(value: Any, name: str, default: Any) -> Any:
        return config.get(name, default) if value is None else value

    link = FlowerLink(grid)
    asked = {
        "state_dir": given(state_dir, "state-dir", None),
        "copies": given(copies, "copies", None),
        "n_sites": given(sites, "sites", 2),
        "wait": given(wait, "wait", 60),
    }
    if (n := simulation.n_nodes(grid)) is not None:
        asked = simulation.arranged(asked, n, config, context.run_id)
    if not asked["state_dir"]:
        raise ArgumentError("state-dir must be given in the run config, an absolute path")
    folder = asked["state_dir"] = checks.path("state-dir", asked["state_dir"])
    schema = None if initial_arrays is None else ModelSchema.of(model_of(initial_arrays))

    def check_room(n_sites: int) -> None:
        if schema is not None:
            room.check(
                n_sites,
                schema,
                folder,
                estimator=str(config.get("estimator", DEFAULT_ESTIMATOR)),
                server_optimizer=str(config.get("server-optimizer", "sgd")),
            )

    return coordinator.share(
        link,
        federation=str(given(federation, "federation", "federation")),
        check_room=check_room,
        run_id=context.run_id,
        **asked,
        seconds=given(timeout, "timeout", 120),
        reshare=given(reshare, "reshare", False),
        leave=_listed("leave", given(leave, "leave", ""), "names"),
        seed=given(seed, "seed", None),
        most_examples=config.get("max-examples", MOST_EXAMPLES),
    )


def settings_from(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `CodedSum` that a run config sets, by their names with dashes.

    They are checked, and so is num-rounds: call this before `share`, so that a mistake is noticed
    before an exchange is made. A negative straggler-prob means that it is estimated, deadline = 0
    that it is adaptive, rehearse-stragglers = p that sites are missing at random, an empty watch
    that no metric is watched, an empty late that late answers are remembered where the estimator
    remembers, and an empty track (else targets with commas between) that nothing is tracked.
    """
    from fedcommons.federate.server.evaluation import Evaluation
    from fedcommons.federate.server.settings import Settings, remembers_late
    from fedcommons.federate.transport.coded_sum import sites_per_round
    from fedcommons.tracking import targets

    names = (
        "estimator",
        "warm",
        "code",
        "learning-rate",
        "decay",
        "local-steps",
        "batch-size",
        "server-optimizer",
        "seed",
        "answer-bound",
        "step-control",
        "scale",
        "evaluate-every",
        "fraction-evaluate",
        "sites-per-round",
        "ask-by",
        "least-sites",
        "fraction-train",
        "min-train-nodes",
        "work",
        "correct",
    )
    found = {name.replace("-", "_"): run_config[name] for name in names if name in run_config}
    p = checks.real("straggler-prob", run_config.get("straggler-prob", -1), low=-math.inf)
    if p >= 0:
        found["straggler_prob"] = p
    rehearsed = run_config.get("rehearse-stragglers", 0)
    if (p := checks.real("rehearse-stragglers", rehearsed, low=0)) > 0:
        found["stragglers"] = Bernoulli(p)
    of_evaluation = {"every": "evaluate-every", "fraction": "fraction-evaluate"}
    Evaluation(
        **{name: run_config[key] for name, key in of_evaluation.items() if key in run_config}
    )
    trained = {name: value for name, value in found.items() if "evaluate" not in name}
    part, least = trained.pop("fraction_train", None), trained.pop("min_train_nodes", None)
    settings = Settings.of(**trained, **sites_per_round(part, least, trained))
    if run_config.get("late"):
        found["late"] = run_config["late"]
        remembers_late(settings, run_config["late"])
    if run_config.get("track"):
        found["track"] = _listed("track", run_config["track"], "targets")
        targets(found["track"], absolute=True)
    found |= _watched(run_config)
    checks.integer("num-rounds", run_config.get("num-rounds", 0), low=0)
    if "deadline" in run_config:
        found["deadline"] = checks.real("deadline", run_config["deadline"], low=0) or "adaptive"
    if "audit" in run_config:
        found["audit"] = checks.boolean("audit", run_config["audit"])
    return found


def _watched(run_config: Mapping[str, Any]) -> dict[str, Any]:
    """The metric by which the best model is kept, if there is one; a patience of 0 is none."""
    from fedcommons.federate.server.best import Watch

    if not run_config.get("watch"):
        return {}
    patience = checks.integer("patience", run_config.get("patience", 0), low=0) or None
    found = Watch.of(run_config["watch"], run_config.get("direction"), patience)
    assert found is not None
    return {"watch": found.metric, "direction": found.direction, "patience": found.patience}


def _listed(name: str, value: Any, what: str) -> list[str]:
    """Texts, or one text of them with commas between."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise ArgumentError(f"{name} must be {what} with commas between, got {value!r}")
    return [text.strip() for text in texts if text.strip()]
