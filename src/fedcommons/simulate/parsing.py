"""Reading a curve from a study file: its keys, their types, and lists of values."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedcommons import work
from fedcommons.coding import CODES
from fedcommons.errors import ArgumentError, StudyError
from fedcommons.estimators import ESTIMATORS
from fedcommons.simulate import models, settings
from fedcommons.simulate.algorithms import ALGORITHMS
from fedcommons.simulate.curve_fields import OF_WORK
from fedcommons.simulate.curves import Curve

SETTINGS = settings.settings(Curve)
CURVE_KEYS = settings.keys(Curve)  # key in the file -> field of a curve
FIELD_KEYS = {field: key for key, field in CURVE_KEYS.items()}
LAW = "law"  # what a file writes for p where a clock says how often who is late
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
    types = settings.value_types(Curve)
    for key, field in CURVE_KEYS.items():
        setting, wanted = SETTINGS[field], types[field]
        values = options.get(key, [])
        for value in values if isinstance(values, list) else [values]:
            if setting.word_for_none and value == setting.word_for_none:
                continue
            if (key, value) in (("p", LAW), ("work", work.FITS)):
                continue
            if type(value) is not wanted and (wanted, type(value)) != (float, int):
                word = setting.word_for_none or (LAW if key == "p" else "")
                name = TYPE_NAMES[wanted] + (f' or "{word}"' if word else "")
                raise StudyError(f"{where}: {key} must be {name}, got {value!r}")
            try:
                setting.check(field, value)
            except ArgumentError as error:
                raise StudyError(f"{where}: {_as_written(str(error))}") from None


def curve(choice: Mapping[str, Any], where: str) -> Curve:
    """The curve of one choice. A key that the others leave without a use is passed over.

    `check_values` has seen what the choice is from.
    """
    choice = _with_work(choice)
    given = {
        CURVE_KEYS[key]: _value(CURVE_KEYS[key], value)
        for key, value in choice.items()
        if key in CURVE_KEYS and (key, value) != ("p", LAW)
    }
    if choice.get("p") == LAW:
        given["prob_from_law"] = True
    if "partition" not in given:
        raise StudyError(f"{where} must have the key 'partition'")
    try:
        return Curve(**_with_a_use(given))
    except ArgumentError as error:
        raise StudyError(f"{where}: {_as_written(str(error))}") from None


def _value(field: str, value: Any) -> Any:
    if value == (SETTINGS[field].word_for_none or None):
        return None
    return float(value) if settings.value_types(Curve)[field] is float else value


def _with_a_use(given: dict[str, Any]) -> dict[str, Any]:
    """The fields that have a use beside the others."""
    values = {**settings.defaults(Curve), **given}
    if ALGORITHMS[values["algorithm"]].sharing == "everything" and "proportion" not in given:
        given = {**given, "proportion": 1.0}
    if values["stragglers"] == "recorded":  # the recording says how often who is missing
        given = {field: value for field, value in given.items() if field != "straggler_prob"}
    if values["policy"] and "estimator" not in given and values["work"] in OF_WORK:
        given = {**given, "estimator": OF_WORK[values["work"]]}
        values |= given
    kept = {}
    for field, setting in SETTINGS.items():
        applies = setting.applies(values)
        if field in given and (applies or (field == "warm" and given[field])):
            kept[field] = given[field]
        if applies and setting.to_be_written and field not in given:
            raise ArgumentError(
                f"{field} must be given for {values['algorithm']}, got none; "
                f"{setting.to_be_written}"
            )
    return kept


def _as_written(message: str) -> str:
    """The message with the key that the file has for the field that it begins with."""
    field, rest = message.split(" ", maxsplit=1)
    return f"{FIELD_KEYS.get(field, field)} {rest}"


def _with_work(choice: Mapping[str, Any]) -> dict[str, Any]:
    """The choice with the kind of work that fits its model, if that is what it asks for."""
    if choice.get("work") != work.FITS:
        return dict(choice)
    linear = choice.get("model", models.LINEAR[0]) in models.LINEAR
    return {**choice, "work": work.kind_that_fits(linear=linear)}


def simplest(choice: Mapping[str, Any]) -> dict[str, Any]:
    """A choice of a grid without what changes nothing, so that equal ones are found equal."""
    result = _with_work(choice)
    if result.get("policy") and result.get("work") in OF_WORK:
        result["estimator"] = OF_WORK[result["work"]]  # it decides
    if not ESTIMATORS[result.get("estimator", "coded_sum")].remembers:
        result.pop("warm", None)
    if not ESTIMATORS[result.get("estimator", "coded_sum")].hears_late:
        result.pop("late", None)
    known_to_differ = result.get("p_spread") or result.get("stragglers") == "recorded"
    alike = "assumed_p" in result or not known_to_differ
    if CODES[result.get("code", "equal-split")].name == "reliability-split" and alike:
        result.pop("code")  # for clients alike in p it is the equal split
    sharing = ALGORITHMS[result.get("algorithm", "coded_gd")].sharing
    if sharing == "proportion-and-copies" and not (result.get("c") and result.get("d")):
        for key in ("c", "d", "code", "scheme"):
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
