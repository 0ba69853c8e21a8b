"""What rankings say in sentences: which lines are best, and who beats whom in every setting."""

from __future__ import annotations

from collections.abc import Sequence

from fedcommons.simulate.ranking import Setting

MOST_DUELS = 6  # sentences; the table has the rest


def sentences(settings: Sequence[Setting]) -> list[str]:
    """What can be said of all settings together."""
    n = len(settings)
    labels = _labels(settings)
    good = {label: sum(_is_as_good(label, setting) for setting in settings) for label in labels}
    found = praises(settings)
    found += _duels(settings, {label for label in labels if n == 1 or good[label] == n})
    behind = [
        label
        for label in labels
        if n > 1 and not good[label] and all(_is_there(label, setting) for setting in settings)
    ]
    if behind:
        are = "is" if len(behind) == 1 else "are"
        found.append(f"{listed(behind)} {are} behind the best line in {_where(n, n)}.")
    return found


def praises(settings: Sequence[Setting], what: str = "best line") -> list[str]:
    """Which lines are the best, or cannot be told from it, and in how many settings."""
    if len(settings) == 1:
        return _praises_of_one(settings[0], what)
    n = len(settings)
    found: list[str] = []
    for k in range(n, 0, -1):
        good = [
            label
            for label in _labels(settings)
            if sum(_is_as_good(label, s) for s in settings) == k
        ]
        alone = [label for label in good if sum(_is_alone(label, s) for s in settings) == k]
        found += [f"{label} is the {what} in {_where(k, n)}." for label in alone]
        tied = [label for label in good if label not in alone]
        if len(tied) == 1:
            found.append(f"{tied[0]} is the {what}, or cannot be told from it, in {_where(k, n)}.")
        elif tied:
            found.append(
                f"Each of {listed(tied)} is the {what}, or cannot be told from it, in "
                f"{_where(k, n)}."
            )
    return found


def _praises_of_one(setting: Setting, what: str) -> list[str]:
    """One sentence, which names all that cannot be told from the best."""
    best, *others = [rank.label for rank in setting.ranks if rank.as_good] or [""]
    if not best:
        return []
    if not others:
        return [f"{best} is the {what}."]
    return [f"{best} is the {what}, but {listed(others)} cannot be told from it."]


def _duels(settings: Sequence[Setting], best: set[str]) -> list[str]:
    """Who beats whom in every setting, for lines whose place the other sentences do not say."""
    always = [
        pair
        for pair in (settings[0].beats if settings else ())
        if all(pair in s.beats for s in settings)
    ]
    n = len(settings)
    return [f"{one} beats {other} in {_where(n, n)}." for one, other in always if one not in best][
        :MOST_DUELS
    ]


def _where(k: int, n: int) -> str:
    if k < n:
        return f"{k} of {n} settings"
    return "both settings" if n == 2 else f"all {n} settings"


def listed(words: Sequence[str]) -> str:
    """As in: one, two and three. Where labels have commas themselves, with semicolons."""
    *first, last = words
    if not first:
        return last
    if any("," in word for word in words):
        return "; ".join([*first, f"and {last}"])
    return f"{', '.join(first)} and {last}"


def _labels(settings: Sequence[Setting]) -> list[str]:
    return sorted({rank.label for setting in settings for rank in setting.ranks})


def _is_there(label: str, setting: Setting) -> bool:
    return any(rank.label == label for rank in setting.ranks)


def _is_as_good(label: str, setting: Setting) -> bool:
    return any(rank.label == label and rank.as_good for rank in setting.ranks)


def _is_alone(label: str, setting: Setting) -> bool:
    """Whether it is the best line and no other is as good."""
    return [rank.label for rank in setting.ranks if rank.as_good] == [label]
