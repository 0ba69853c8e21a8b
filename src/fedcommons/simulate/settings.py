"""What is known of each field of a curve: one table, from which the rest derives.

Reading a study file, checking it, the columns of the tables and the words in labels and captions
all go by the `Setting` that stands beside the field in `Curve`. A new field is one entry there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from fedcommons import checks
from fedcommons.errors import ArgumentError
from fedcommons.registry import Registry

if TYPE_CHECKING:
    from fedcommons.simulate.curves import Curve

Values = Mapping[str, Any]  # a curve's fields by name, or those of one in the making
ALL = "all"  # what a file writes for a number of examples that is None
ADAPTIVE = "adaptive"  # and for such a deadline


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of a curve.

    Attributes:
        key: what files and tables call it; None for a field that neither has.
        check: (name, value) -> nothing; raises what a value can never be.
        applies: whether the field has a use beside these values of the others. Where it has none
            its value is the default.
        belongs_to: what it goes with, for the message about a value where it has no use.
        needed: whether it must be given where it has a use: its default is no value then.
        to_be_written: what a file must be told that leaves it out where it has a use.
        word_for_none: what a file writes for a number that is None, such as "all"; may be empty.
        of_paper: whether it is always part of a curve's key; others are if not the default.
        rank: where its words come among those of the others.
        label: what a line of a grid is called that differs from others in this; may be empty.
        tells: what tells this line from others that have the same label.
        caption: what the field says of a line, for the words beside a figure; may be empty.
    """

    key: str | None
    check: Callable[[str, Any], object] = lambda _name, _value: None
    applies: Callable[[Values], bool] = lambda _values: True
    belongs_to: str = ""
    needed: bool = False
    to_be_written: str = ""
    word_for_none: str = ""
    of_paper: bool = False
    rank: int = 50
    label: Callable[[Curve], str] | None = None
    tells: Callable[[Curve], str] | None = None
    caption: Callable[[Curve], str] | None = None

    def field(self, default: Any = MISSING) -> Any:
        """The dataclass field that carries it."""
        if default is MISSING:
            return field(metadata={"setting": self})
        return field(default=default, metadata={"setting": self})


def named_in(parts: Registry[Any]) -> Callable[[str, Any], object]:
    """The check of a field that names one of these parts."""

    def check(name: str, value: Any) -> object:
        return parts.named(name, value)

    check.parts = parts  # type: ignore[attr-defined]
    return check


def short_name(name: str) -> str:
    """A part's name without the module that somebody else's comes from."""
    return name.rpartition(":")[2]


def spoken(name: str) -> str:
    return short_name(name).replace("_", " ")


def probability(name: str, value: object) -> None:
    """Refuse what is not in [0, 1)."""
    if checks.real(name, value, low=0) >= 1:
        raise ArgumentError(f"{name} must be in [0, 1), got {value}")


def one_of(options: tuple[str, ...], name: str, value: object) -> None:
    if value not in options:
        raise ArgumentError(f"{name} must be one of {', '.join(options)}, got {value!r}")


def parts_of(setting: Setting) -> Registry[Any] | None:
    """The parts of which a field names one, if it does."""
    return getattr(setting.check, "parts", None)


def setting_of(one: Field[Any]) -> Setting:
    found: Setting = one.metadata["setting"]
    return found


@cache
def settings(of: type) -> dict[str, Setting]:
    """Every field's setting, by the field's name."""
    return {one.name: setting_of(one) for one in fields(of)}


@cache
def ranked(of: type) -> tuple[tuple[str, Setting], ...]:
    """The settings in the order of their words."""
    return tuple(sorted(settings(of).items(), key=lambda item: item[1].rank))


@cache
def keys(of: type) -> dict[str, str]:
    """The keys of a study file -> the fields of a curve."""
    return {s.key: name for name, s in settings(of).items() if s.key is not None}


@cache
def value_types(of: type) -> dict[str, type]:
    """The type of each field, None apart."""
    found = {}
    for name, hint in get_type_hints(of).items():
        kinds = [k for k in get_args(hint) if k is not type(None)]
        found[name] = kinds[0] if isinstance(hint, UnionType) else hint
    return found


def defaults(of: type) -> dict[str, Any]:
    """The defaults of the fields that have one."""
    return {one.name: one.default for one in fields(of) if one.default is not MISSING}


def check(of: type, values: Values) -> None:
    """Refuse values that a field can never have, or has no use for, whatever else is right."""
    default = defaults(of)
    for name, setting in settings(of).items():
        if name not in default or values[name] != default[name]:
            setting.check(name, values[name])
    for name, setting in settings(of).items():
        given = name not in default or values[name] != default[name]
        applies = setting.applies(values)
        if given and not applies:
            raise ArgumentError(
                f"{name} must go with {setting.belongs_to}, got {values[name]!r} elsewhere"
            )
        if setting.needed and applies and not given:
            raise ArgumentError(f"{name} must be given for {setting.belongs_to}, got none")
