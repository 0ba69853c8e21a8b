"""Which mods go with `coded`, and in which place.

What is behind `coded` works on what a training function returns, as in any Flower app; what is
before it, in a function's list or as a mod of the whole app, works on the coded answer. A mod there
that changes the answer is noticed by its digest. Those that Flower brings are known by name, and
refused where they cannot work before anything is asked of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedcommons.federate.protocol.refusals import ModRefused

Mod = Callable[..., Any]

CLIPPING_NORM = "clipping_norm"
CLIPS = {"LocalDpMod", "fixedclipping_mod"}
BEHIND = "put it behind coded: @app.train(mods=[coded(site), {}])"
OUTSIDE = {  # of Flower's mods
    "LocalDpMod": f"it would clip and blur the coded answer as if it were a model; {BEHIND}",
    "fixedclipping_mod": f"it would clip the coded answer as if it were a model; {BEHIND}",
    "arrays_size_mod": f"it fails where coded refuses, since errors have no content; {BEHIND}",
    "message_size_mod": f"it fails where coded refuses, since errors have no content; {BEHIND}",
}
ANYWHERE = {
    "adaptiveclipping_mod": "its norm is set by a wrapper of Flower's strategies that takes an "
    "average over sites; take fixedclipping_mod, with clipping_norm in train_config",
    "secaggplus_mod": "secure aggregation sums masked models, of which the server cannot tell "
    "the sites' answers apart; it needs Flower's older workflow",
    "secagg_mod": "secure aggregation sums masked models, of which the server cannot tell the "
    "sites' answers apart; it needs Flower's older workflow",
}


def name_of(mod: Mod) -> str:
    return str(getattr(mod, "__name__", type(mod).__name__))


def _of_flower(mod: Mod) -> str:
    """The name of a mod that comes with Flower; empty for others."""
    module = str(getattr(mod, "__module__", None) or type(mod).__module__)
    return name_of(mod) if module.split(".")[0] == "flwr" else ""


def check_outside(mods: Sequence[Mod]) -> None:
    """Refuse mods of Flower that are before `coded`."""
    for name in map(_of_flower, mods):
        if name in ANYWHERE:
            raise ModRefused(f"{name} does not go with coded: {ANYWHERE[name]}")
        if name in OUTSIDE:
            raise ModRefused(f"{name} is outside of coded: {OUTSIDE[name].format(name)}")


def check_inside(mods: Sequence[Mod]) -> None:
    """Refuse mods of Flower that do not work behind `coded` either."""
    for name in map(_of_flower, mods):
        if name in ANYWHERE:
            raise ModRefused(f"{name} does not go with coded: {ANYWHERE[name]}")


def check_question(mods: Sequence[Mod], task: str, config: Mapping[str, Any]) -> None:
    """Refuse what the mods behind `coded` cannot do for this question."""
    for name in map(_of_flower, mods):
        if name == "fixedclipping_mod" and CLIPPING_NORM not in config:
            raise ModRefused(
                f"fixedclipping_mod needs the number {CLIPPING_NORM} in the server's train_config"
            )
        if name == "LocalDpMod" and task == "owner-share":
            raise ModRefused(
                "LocalDpMod does not go with the owner-corrected code, which takes a gradient of "
                "each shared example; choose code = equal-split"
            )


def check_returned(mods: Sequence[Mod], returned: Mapping[str, Any]) -> None:
    """Refuse a gradient that a mod has taken for a model."""
    for name in map(_of_flower, mods):
        if name in CLIPS and "gradient" in returned:
            raise ModRefused(
                f"{name} clips how far a model went: return the trained arrays, not a gradient"
            )
