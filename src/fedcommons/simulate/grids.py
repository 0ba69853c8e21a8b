"""Grids: every combination of the settings in lists, as figures whose lines name themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcommons.simulate import written_curves
from fedcommons.simulate.curves import AS_IT_IS, Curve
from fedcommons.simulate.written_curves import CURVE_KEYS

SETTING = (
    "partition",
    "alpha",
    "model",
    "stragglers",
    "mean_absence",
    "trace",
)  # a figure for each
PANEL = "straggler_prob"  # a panel of the figure for each


def curves(tables: Iterable[Mapping[str, Any]], shared: Mapping[str, Any]) -> list[Curve]:
    """The curves of some [[grid]] tables, each once, in their order."""
    found: dict[Curve, None] = {}
    for table in tables:
        written_curves.known_keys(table, tuple(CURVE_KEYS), "[grid]")
        rest = {key: value for key, value in shared.items() if key not in table}
        written_curves.check_values({**table, **rest}, "[grid]")
        for choice in written_curves.choices({**table, **rest}):
            found[written_curves.curve(written_curves.simplest(choice), "[grid]")] = None
    return list(found)


def figures(found: list[Curve], *, tune: bool) -> list[tuple[str, str, list[tuple[str, Curve]]]]:
    """(name, title, [(label, curve)]) of a figure for each setting."""
    by_setting: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in found:
        by_setting.setdefault(tuple(getattr(curve, key) for key in SETTING), []).append(curve)
    ignored = (*SETTING, PANEL, *(("learning_rate",) if tune else ()))
    varying = [
        field
        for field in CURVE_KEYS.values()
        if field not in ignored and len({getattr(curve, field) for curve in found}) > 1
    ]
    traces = Counter(Path(trace).name for trace in {curve.trace for curve in found})
    names: Counter[str] = Counter()
    result = []
    for group in by_setting.values():
        title = _title(group[0], traces)
        name = re.sub(r"[^a-z0-9.]+", "-", title.lower().replace("α", "alpha")).strip("-")[:100]
        names[name] += 1
        if names[name] > 1:  # titles that differ in what a name leaves out
            name = f"{name}-{names[name]}"
        result.append((name, title, [(_label(curve, varying), curve) for curve in group]))
    return result


def _title(curve: Curve, traces: Mapping[str, int]) -> str:
    """A figure's title; `traces` says how many recordings have a file name."""
    words = [curve.model]
    words.append(
        f"Dirichlet α = {curve.alpha:g}" if curve.partition == "dirichlet" else curve.partition
    )
    if curve.stragglers == "markov":
        words.append(f"absences of {curve.mean_absence:g} rounds")
    if curve.stragglers == "recorded":
        name = Path(curve.trace).name
        words.append(f"absences of {name if traces[name] == 1 else curve.trace}")
    return ", ".join(words)


def _label(curve: Curve, varying: list[str]) -> str:
    """What tells a curve from the others."""
    words = []
    if "algorithm" in varying or not varying:
        words.append(curve.algorithm.replace("_", " "))
    if {"proportion", "copies"} & set(varying) and curve.method.sharing != "none":
        words.append(_sharing(curve))
    if "code" in varying and curve.code != "equal-split":
        words.append(curve.code)
    if "estimator" in varying and curve.estimator != "coded_sum":
        words.append(curve.estimator.replace("_", " "))
    if "warm" in varying and curve.warm:
        words.append("warm")
    for field, sign in (
        ("local_steps", "steps"),
        ("batch_size", "batch"),
        ("learning_rate", "η"),
        ("decay", "decay"),
        ("server_rate", "server rate"),
        ("mu", "μ"),
    ):
        has_a_use = {"mu": curve.algorithm == "fedprox", "local_steps": curve.method.several_steps}
        if field in varying and has_a_use.get(field, True):
            words.append(f"{sign} {getattr(curve, field):g}")
    if "prob_spread" in varying and curve.prob_spread:
        words.append(f"p ± {curve.prob_spread:g}")
    if "assumed_prob" in varying and curve.assumed_prob != AS_IT_IS:
        words.append(f"p taken for {curve.assumed_prob:g}")
    return ", ".join(words) or curve.estimator.replace("_", " ")


def _sharing(curve: Curve) -> str:
    if curve.method.sharing == "proportion":
        return f"c = {curve.proportion:g}"
    if not (curve.proportion and curve.copies):
        return "no sharing"
    return f"({curve.proportion:g}, {curve.copies})"
