"""Grids: every combination of the settings in lists, as figures whose lines name themselves."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedcommons.simulate import parsing, settings
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.parsing import CURVE_KEYS
from fedcommons.simulate.settings import spoken

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
        parsing.known_keys(table, tuple(CURVE_KEYS), "[grid]")
        rest = {key: value for key, value in shared.items() if key not in table}
        parsing.check_values({**table, **rest}, "[grid]")
        for choice in parsing.choices({**table, **rest}):
            found[parsing.curve(parsing.simplest(choice), "[grid]")] = None
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
        f"{curve.partition.capitalize()} α = {curve.alpha:g}" if curve.alpha else curve.partition
    )
    if curve.stragglers == "markov":
        words.append(f"absences of {curve.mean_absence:g} rounds")
    if curve.stragglers == "recorded":
        name = Path(curve.trace).name
        words.append(f"absences of {name if traces[name] == 1 else curve.trace}")
    return ", ".join(words)


def _label(curve: Curve, varying: list[str]) -> str:
    """What tells a curve from the others."""
    told = {*varying, *(["algorithm"] if not varying else [])}
    if "copies" in told:  # worded with the proportion
        told.add("proportion")
    words = [
        setting.label(curve)
        for field, setting in settings.ranked(Curve)
        if field in told and setting.label is not None
    ]
    return ", ".join(filter(None, words)) or spoken(curve.estimator)
