"""What a site's operator allows, whatever the server asks for: `policy.toml` in the store's folder.

Without the file the defaults hold, which are for real sites. Everything here is enforced where the
site answers; the server is not even told.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedcommons import checks
from fedcommons.errors import ArgumentError

FILE = "policy.toml"
HASH = re.compile(r"[0-9a-f]{64}")
LARGEST = 2**40


def _key(name: str) -> str:
    return name.replace("_", "-")


def _hashes(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, str) and HASH.fullmatch(one) for one in value
    ):
        raise ArgumentError(f"apps must be a list of hashes of 64 digits each, got {value!r}")
    return tuple(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One site's rules. The file's keys are the fields' names with dashes.

    Attributes:
        min_examples: the least of the site's own examples in an answer, and the least in a batch
            that the server asks for.
        min_change: the least examples that a commit may set apart from the others in an answer, by
            changing their shares, unless their owner signed for it.
        max_local_steps: the most steps that the server may ask for in one answer.
        min_sites: the least sites in an exchange, this one included.
        max_copies: the most sites that may ever be sent the same example.
        share_with_all: whether every other site of an exchange may get a copy of the same example.
        require_ground: whether every example that may be shared needs a ground in the data file.
        exchanges: how many exchanges need no approval by the operator.
        draws: how often this site helps to draw one exchange: more would let others choose.
        unconfirmed_answers: how many answers it gives under a commit before another site must have
            signed that it is under it too.
        apps: hashes of the apps that may train here (`fedcommons federate review`); any if empty.
    """

    min_examples: int = 32
    min_change: int = 32
    max_local_steps: int = 1000
    min_sites: int = 3
    max_copies: int = 3
    share_with_all: bool = False
    require_ground: bool = False
    exchanges: int = 1
    draws: int = 3
    unconfirmed_answers: int = 10
    apps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lowest = {"min_sites": 2, "max_copies": 0, "exchanges": 0, "unconfirmed_answers": 0}
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name == "apps":
                checked: Any = _hashes(value)
            elif name in ("share_with_all", "require_ground"):
                checked = checks.boolean(_key(name), value)
            else:
                low = lowest.get(name, 1)
                checked = checks.integer(_key(name), value, low=low, high=LARGEST)
            object.__setattr__(self, name, checked)

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> Policy:
        """The policy that a file's content says; a key that is unknown is refused by its name."""
        known = {_key(field.name): field.name for field in fields(cls)}
        unknown = sorted(set(content) - set(known))
        if unknown:
            raise ArgumentError(f"{unknown[0]!r} is no rule of a policy: {', '.join(known)}")
        return cls(**{known[key]: value for key, value in content.items()})

    @property
    def listed(self) -> dict[str, Any]:
        """Every rule by the name that it has in the file."""
        return {_key(field.name): getattr(self, field.name) for field in fields(self)}


# Of a simulation, where nobody else is there and data are few: nothing is forbidden.
SIMULATED = Policy(
    min_examples=1,
    min_change=1,
    max_local_steps=LARGEST,
    min_sites=2,
    max_copies=LARGEST,
    share_with_all=True,
    exchanges=LARGEST,
    draws=LARGEST,
    unconfirmed_answers=LARGEST,
)


def read_policy(store: Path, otherwise: Policy | None = None) -> Policy:
    """The policy in a store's folder; if it has none, the safe one, or what is said otherwise."""
    path = store / FILE
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        return Policy.of(content)
    except FileNotFoundError:
        return otherwise or Policy()
    except ArgumentError as error:
        raise ArgumentError(f"policy {path}: {error}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(f"policy {path} cannot be read: {error}") from None
