"""Which lines of several settings are the same choice, and what it is called.

A figure's labels tell its own lines apart, no more: with tuned rates the same choice has another
rate, and so another label, in another setting, and one label may stand for two choices in two
figures. A choice is the fields in which lines of any one setting differ, without a tuned rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import groupby

from fedcommons.simulate.curves import Curve
from fedcommons.simulate.definition import Line
from fedcommons.simulate.ranking import Setting

Place = tuple[str, float, str]  # figure, p, label


def names(compared: Sequence[tuple[str, Sequence[Line]]], *, tuned: bool) -> dict[Place, str]:
    """What each line, by its place, is called where settings are taken together."""
    told = _telling([curve for _, lines in compared for curve in _by_p(lines)], tuned=tuned)
    rate = {f", η = {line.curve.learning_rate:g}" for _, lines in compared for line in lines}
    choice_of: dict[Place, object] = {}
    called: dict[object, list[str]] = {}
    for figure, lines in compared:
        for line in lines:
            choice = tuple(getattr(line.curve, name) for name in told)
            choice_of[figure, line.curve.straggler_prob, line.label] = choice
            label = line.label
            for words in rate if tuned else ():
                label = label.removesuffix(words)
            called.setdefault(choice, []).append(label)
    name = {choice: labels[0] for choice, labels in called.items()}
    shared = {one for one in name.values() if list(name.values()).count(one) > 1}
    return {
        place: f"{name[choice]} (in {place[0]})" if name[choice] in shared else name[choice]
        for place, choice in choice_of.items()
    }


def renamed(settings: Iterable[Setting], called: Mapping[Place, str]) -> list[Setting]:
    """The settings with every line called by its choice."""

    def by_choice(setting: Setting) -> Setting:
        def name(label: str) -> str:
            return called[setting.figure, setting.straggler_prob, label]

        return replace(
            setting,
            ranks=tuple(replace(rank, label=name(rank.label)) for rank in setting.ranks),
            lost=tuple(map(name, setting.lost)),
            beats=tuple((name(one), name(other)) for one, other in setting.beats),
        )

    return [by_choice(setting) for setting in settings]


def _by_p(lines: Sequence[Line]) -> list[list[Curve]]:
    """The curves of one figure, those of each p together."""
    curves = sorted((line.curve for line in lines), key=_prob)
    return [list(same) for _, same in groupby(curves, key=_prob)]


def _prob(curve: Curve) -> float:
    return curve.straggler_prob


def _telling(settings: Sequence[Sequence[Curve]], *, tuned: bool) -> list[str]:
    """The fields that differ between lines of one setting."""
    return [
        field.name
        for field in fields(Curve)
        if not (tuned and field.name == "learning_rate")
        and any(len({getattr(curve, field.name) for curve in same}) > 1 for same in settings)
    ]
