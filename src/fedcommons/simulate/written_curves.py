"""A curve as a study file writes it: its keys, their types, and lists of values."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any, get_type_hints

from fedcommons.errors import ArgumentError, StudyError
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate.algorithms import ALGORITHMS, Algorithm
from fedcommons.simulate.algorithms.algorithm import estimated
from fedcommons.simulate.curves import VALUES, Curve, check_value

CURVE_KEYS = {  # key in the file -> field of a curve
    "partition": "partition",
    "alpha": "alpha",
    "p": "straggler_prob",
    "p_spread": "prob_spread",
    "c": "proportion",
    "d": "copies",
    "code": "code",
    "estimator": "estimator",
    "warm": "warm",
    "learning_rate": "learning_rate",
    "decay": "decay",
    "stragglers": "stragglers",
    "mean_absence": "mean_absence",
    "trace": "trace",
    "assumed_p": "assumed_prob",
    "algorithm": "algorithm",
    "model": "model",
    "local_steps": "local_steps",
    "batch_size": "batch_size",
    "server_rate": "server_rate",
    "mu": "mu",
}
FIELD_KEYS = {field: key for key, field in CURVE_KEYS.items()}
FIELD_TYPES: dict[str, type] = get_type_hints(Curve)
MOST_LINES = 100_000  # of one table: more could neither be read nor be drawn
TYPE_NAMES = {float: "a number", int: "an integer", str: "a string", bool: "true or false"}


def choices(options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One choice for each combination of the keys that are lists."""
    lists = {key: value if isinstance(value, list) else [value] for key, value in options.items()}
    for key, values in lists.items():
        if not values:
            raise StudyError(f"{key} must have at least one value, got an empty list")
    n_lines = math.prod(map(len, lists.values()))
    if n_lines > MOST_LINES:
        raise StudyError(
            f"a grid must have at most {MOST_LINES} lines, one for each combination of its lists, "
            f"got {n_lines}; take fewer values, or several studies"
        )
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def check_values(options: Mapping[str, Any], where: str) -> None:
    """Refuse a value that its key can never have, also where the key has no use."""
    for key, field in CURVE_KEYS.items():
        values = options.get(key, [])
        for value in values if isinstance(values, list) else [values]:
            wanted = FIELD_TYPES[field]
            if type(value) is not wanted and (wanted, type(value)) != (float, int):
                raise StudyError(f"{where}: {key} must be {TYPE_NAMES[wanted]}, got {value!r}")
            try:
                if field in VALUES:
                    check_value(field, value)
            except ArgumentError as error:
                raise StudyError(f"{where}: {_as_written(str(error))}") from None


def curve(choice: Mapping[str, Any], where: str) -> Curve:
    """The curve of one choice. A key that the others leave without a use is passed over.

    `check_values` has seen what the choice is from.
    """
    fields: dict[str, Any] = {
        CURVE_KEYS[key]: float(value) if FIELD_TYPES[CURVE_KEYS[key]] is float else value
        for key, value in choice.items()
        if key in CURVE_KEYS
    }
    if "partition" not in fields:
        raise StudyError(f"{where} must have the key 'partition'")
    if fields.get("algorithm") == "fedprox" and "mu" not in fields:
        raise StudyError(f"{where}: mu must be given for fedprox, got none; 0 makes it fedavg")
    _leave_out_what_has_no_use(fields)
    try:
        return Curve(**fields)
    except ArgumentError as error:
        raise StudyError(f"{where}: {_as_written(str(error))}") from None


def _as_written(message: str) -> str:
    """The message with the key that the file has for the field that it begins with."""
    field, rest = message.split(" ", maxsplit=1)
    return f"{FIELD_KEYS.get(field, field)} {rest}"


def _leave_out_what_has_no_use(fields: dict[str, Any]) -> None:
    without = []
    recorded = fields.get("stragglers") == "recorded"
    if fields["partition"] != "dirichlet":
        without.append("alpha")
    if fields.get("stragglers") != "markov":
        without.append("mean_absence")
    without += ["straggler_prob", "prob_spread"] if recorded else ["trace"]
    if fields.get("algorithm") != "fedprox":
        without.append("mu")
    algorithm = ALGORITHMS.get(fields.get("algorithm", "coded_gd"))
    if algorithm is not None:
        if algorithm.sharing == "everything":
            fields.setdefault("proportion", 1.0)
        if algorithm.sharing == "none":
            without.append("proportion")
        if algorithm.sharing in ("none", "proportion"):
            without.append("copies")
        if not algorithm.estimators:
            without += ["code", "estimator", "warm"]
        if not _needs_p(fields, algorithm):
            without.append("assumed_prob")
    for field in without:
        fields.pop(field, None)


def _needs_p(fields: Mapping[str, Any], algorithm: Algorithm) -> bool:
    """Whether it matters which p the server assumes."""
    estimator = ESTIMATORS.get(fields.get("estimator", "coded_sum"))
    splits = algorithm.estimators and fields.get("code") == "reliability-split"
    scales = algorithm.weigh is estimated and (estimator is None or estimator.needs_p)
    return splits or scales


def simplest(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice of a grid without what changes nothing, so that equal ones are found equal."""
    result = dict(choice)
    estimator = ESTIMATORS.get(result.get("estimator", "coded_sum"))
    if estimator is not None and not estimator.remembers:
        result.pop("warm", None)
    known_to_differ = result.get("p_spread") or result.get("stragglers") == "recorded"
    if result.get("code") == "reliability-split" and ("assumed_p" in result or not known_to_differ):
        result.pop("code")  # for clients alike in p it is the equal split
    algorithm = ALGORITHMS.get(result.get("algorithm", "coded_gd"))
    both = algorithm is not None and algorithm.sharing == "proportion-and-copies"
    if both and not (result.get("c") and result.get("d")):
        for key in ("c", "d", "code"):
            result.pop(key, None)
    return result


def known_keys(entry: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a key that nobody knows, and name the nearest that somebody does.

    The fields of a curve are known as other names of their keys.
    """
    names = {field: key for field, key in FIELD_KEYS.items() if key in known}
    names |= {key.lower(): key for key in known}
    for key in entry:
        if key not in known:
            near = difflib.get_close_matches(key.lower(), names, n=1, cutoff=0.5)
            hint = f"; did you mean {names[near[0]]!r}?" if near else f"; known: {', '.join(known)}"
            raise StudyError(f"unknown key {key!r} in {where}{hint}")
