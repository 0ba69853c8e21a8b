"""The table [clock] of a study: how long clients take, when they are away, how long to train."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedcommons import checks, delay_table
from fedcommons.checks import FloatArray, IntArray
from fedcommons.delay_table import PUBLISHED, DelayTable
from fedcommons.delays import SERVICES, Absences, Delays, Law, Recorded, Units
from fedcommons.errors import ArgumentError, DataError
from fedcommons.streams import stream

STALLS = "stalls"
LAWS = (PUBLISHED, *SERVICES, STALLS)
FILES = (".csv", ".parquet")
USUAL = {"spread": 0.5, "stall": 0.0, "link": 0.0, "failure": 0.0}
STALL_SECONDS = 5.0
MULTIPLY_ADDS = 2.0  # of an example for each parameter: forwards and backwards
BY = ("client", "class")
Numbers = float | tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Away:
    """When clients are away.

    Attributes:
        share: of the time; one number for all, or one for each client or class.
        seconds: how long at a time on average, likewise.
        by: "client", or "class": a client is away like the class that most of its examples are of.
    """

    share: Numbers
    seconds: Numbers
    by: str = "client"

    def __post_init__(self) -> None:
        for name in ("share", "seconds"):
            object.__setattr__(self, name, _numbers(f"away.{name}", getattr(self, name)))
        shares = np.atleast_1d(self.share)
        if not ((shares >= 0) & (shares < 1)).all():
            raise ArgumentError(f"away.share must be in [0, 1), got {self.share}")
        if not (np.atleast_1d(self.seconds) > 0).all():
            raise ArgumentError(f"away.seconds must be > 0, got {self.seconds}")
        if self.by not in BY:
            raise ArgumentError(f"away.by must be one of {', '.join(BY)}, got {self.by!r}")

    def of_clients(self, n_clients: int, classes: IntArray) -> tuple[FloatArray, FloatArray]:
        """Share and seconds of each client, of which most examples are of these classes: (N,)."""
        found = []
        for name in ("share", "seconds"):
            value = np.asarray(getattr(self, name))
            if self.by == "class" and value.ndim:
                if classes.max(initial=-1) >= len(value):
                    raise ArgumentError(
                        f"away.{name} must be one number or one for each of the "
                        f"{classes.max() + 1} classes, got {len(value)}"
                    )
                value = value[classes]
            found.append(checks.per_entry(f"away.{name}", value, n_clients, "client"))
        return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Timing:
    """How the clock of a study runs.

    Attributes:
        seconds: for how long every line trains.
        delays: one of `LAWS`, or a file: a table of sites (`delay_table`), or a recording.
        digest: of the file's content, once it has been read.
        multiply_adds: of an example; None for two for each of the model's parameters.
        rate: multiply-adds a second, of all clients or of each; None for the table's.
        rate_spread: how much clients' rates scatter around that: by a lognormal law, the fastest
            client first.
        spread, stall, tail, link, failure: as in `delays.Law`; None for what the delays say.
        service: the law of computing times; empty for what the delays say.
        away: when clients are away; None for never.
        target: the value of the study's main metric whose time is measured; None for none.
    """

    seconds: float
    delays: str = PUBLISHED
    digest: str = ""
    multiply_adds: float | None = None
    rate: Numbers | None = None
    rate_spread: float = 0.0
    spread: Numbers | None = None
    stall: Numbers | None = None
    link: Numbers | None = None
    failure: Numbers | None = None
    service: str = ""
    tail: float = 1.5
    away: Away | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        checks.positive("seconds", self.seconds)
        if not isinstance(self.delays, str) or not (
            self.delays in LAWS or Path(self.delays).suffix.lower() in FILES
        ):
            raise ArgumentError(
                f"delays must be one of {', '.join(LAWS)}, or a file of the kind "
                f"{' or '.join(FILES)}, got {self.delays!r}"
            )
        if self.multiply_adds is not None:
            checks.positive("multiply_adds", self.multiply_adds)
        for name in ("rate", *USUAL):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _numbers(name, value))
        if self.rate is not None and not (np.atleast_1d(self.rate) > 0).all():
            raise ArgumentError(
                f"rate must be > 0, or a client would never be done, got {self.rate}"
            )
        checks.real("rate_spread", self.rate_spread, low=0)
        if self.service and self.service not in SERVICES:
            raise ArgumentError(
                f"service must be one of {', '.join(SERVICES)}, got {self.service!r}"
            )
        if not checks.real("tail", self.tail, low=1) > 1:
            raise ArgumentError(f"tail must be > 1, or means are infinite, got {self.tail:g}")
        if not isinstance(self.digest, str):
            raise ArgumentError(f"digest must be a string, got {self.digest!r}")
        if self.target is not None:
            checks.finite("target", self.target, shape=())
        if self.delays in SERVICES and self.rate is None:
            raise ArgumentError(f"rate must be given with delays = {self.delays!r}, got none")
        if self.is_recording:
            self._check_only_recorded()

    def _check_only_recorded(self) -> None:
        given = [name for name in ("rate", *USUAL) if getattr(self, name) is not None]
        given += [name for name in ("rate_spread", "service") if getattr(self, name)]
        if given:
            raise ArgumentError(
                f"{given[0]} must be left out with a recording, whose jobs take as long as they "
                f"took, got {getattr(self, given[0])}"
            )

    @property
    def is_recording(self) -> bool:
        return self.delays.lower().endswith(".parquet")

    @property
    def is_file(self) -> bool:
        return self.delays not in LAWS

    def opened(self, beside: Path | None) -> Timing:
        """With the place of its file, relative to a folder, and what is in it."""
        if not self.is_file or beside is None:
            return self
        path = str((beside / self.delays).resolve())
        return replace(self, delays=path, digest=_digest(path))

    def content(self) -> dict[str, Any]:
        """What the numbers depend on: a file is what is in it, wherever it is."""
        found = asdict(self)
        if self.digest:
            del found["delays"]
        return {name: value for name, value in found.items() if value not in (None, "", 0.0)}

    def per_example(self, n_params: int) -> float:
        """Multiply-adds of an example."""
        return MULTIPLY_ADDS * n_params if self.multiply_adds is None else self.multiply_adds

    def law(
        self,
        n_clients: int,
        per_example: float,
        *,
        seed: int,
        run: int,
        sites: tuple[str, ...] = (),
    ) -> Delays:
        """How long the jobs of a run take. `sites` are the clients' names, if they have any."""
        if self.is_recording:
            took = _recorded(self.delays, self.digest)
            of_clients = _ordered(took, n_clients, sites)
            rng = stream(seed, "recording", run)
            first = np.array([rng.integers(len(one)) for one in of_clients])
            return Recorded(of_clients, first)
        units = Units(n_clients, lambda block: stream(seed, "jobs", run, block))
        return self._law(n_clients, per_example, units, sites)

    def _law(self, n_clients: int, per_example: float, units: Units, sites: tuple[str, ...]) -> Law:
        N, parts = n_clients, dict(USUAL)
        service = self.delays if self.delays in SERVICES else "exponential"
        rate: Any = np.inf
        if self.delays == STALLS:
            parts |= {"spread": 0.0, "stall": STALL_SECONDS}
        if self.delays == PUBLISHED or self.is_file:
            table = self.table(N, sites)
            rate = table.multiply_adds(per_example)
            parts = {name: getattr(table, name) for name in USUAL}
        if self.rate is not None:
            rate = self.rate
        rate = np.broadcast_to(checks.per_entry("rate", rate, N, "client"), (N,))
        given = {name: getattr(self, name) for name in USUAL if getattr(self, name) is not None}
        arrays = {
            name: checks.per_entry(name, value, N, "client")
            for name, value in {**parts, **given}.items()
        }
        return Law(
            rate * _scatter(self.rate_spread, N),
            **arrays, units=units, service=self.service or service, tail=self.tail,
        )  # fmt: skip

    def table(self, n_clients: int, sites: tuple[str, ...] = ()) -> DelayTable:
        """The table of the published devices, or of the file."""
        if self.delays == PUBLISHED:
            return delay_table.published(n_clients)
        table = _table(self.delays, self.digest)
        if sites and set(sites) <= set(table.names):
            return table.of(sites)
        if len(table) != n_clients:
            raise ArgumentError(
                f"delays must have a line for each of the {n_clients} clients, got {len(table)} in "
                f"{self.delays}"
            )
        return table

    def absences(
        self, n_clients: int, classes: IntArray, *, seed: int, run: int, sites: tuple[str, ...] = ()
    ) -> Absences | None:
        """When the clients of a run are away, by what most of their examples are of: (N,)."""
        rng = stream(seed, "absences", run)
        if self.away is not None:
            share, length = self.away.of_clients(n_clients, classes)
        elif self.is_file and not self.is_recording:
            table = self.table(n_clients, sites)
            share, length = table.away, np.where(table.away > 0, table.away_seconds, 1.0)
        else:
            return None
        if not share.any():
            return None
        return Absences(share, length, n_clients, horizon=self.seconds, rng=rng)


def parse(table: Mapping[str, Any]) -> Timing:
    """The table [clock] of a study file."""
    given = dict(table)
    if "seconds" not in given:
        raise ArgumentError("seconds must be given: for how long every line trains")
    away = given.pop("away", None)
    if away is not None:
        if not isinstance(away, Mapping):
            raise ArgumentError(f"away must be a table of share and seconds, got {away!r}")
        known = [one.name for one in fields(Away)]
        if unknown := [key for key in away if key not in known]:
            raise ArgumentError(f"away must have the keys {', '.join(known)}, got {unknown[0]!r}")
        if missing := [key for key in ("share", "seconds") if key not in away]:
            raise ArgumentError(f"away.{missing[0]} must be given, got none")
        given["away"] = Away(**away)
    return Timing(**given)


def from_dict(content: Mapping[str, Any] | None) -> Timing | None:
    """What `dataclasses.asdict` gave, back as the record."""
    if content is None:
        return None
    if not isinstance(content, Mapping):
        raise ArgumentError(f"clock must be a table, got {content!r}")
    return parse({name: value for name, value in content.items() if value is not None})


def _numbers(name: str, value: Any) -> Numbers:
    """One finite number, or some."""
    array = checks.finite(name, value)
    if array.ndim > 1 or not array.size:
        raise ArgumentError(f"{name} must be one number or a list of numbers, got {value!r}")
    if (array < 0).any():
        raise ArgumentError(f"{name} must be >= 0, got {array.min():g}")
    return float(array) if array.ndim == 0 else tuple(array.tolist())


def _scatter(spread: float, n_clients: int) -> FloatArray:
    """exp(spread z) with the normal law's quantiles z, the largest first: (N,)."""
    if not spread:
        return np.ones(n_clients)
    from scipy.special import ndtri  # slow to import, and only this needs it

    return np.asarray(np.exp(spread * ndtri((np.arange(n_clients)[::-1] + 0.5) / n_clients)))


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"delays {path} cannot be read: {error.strerror}") from None


def _unchanged(path: str, wanted: str) -> None:
    if wanted and _digest(path) != wanted:
        raise DataError(f"delays {path} must be as when the study was read; they have changed")


@functools.lru_cache(maxsize=16)
def _table(path: str, wanted: str) -> DelayTable:
    _unchanged(path, wanted)
    return delay_table.read(path)


@functools.lru_cache(maxsize=16)
def _recorded(path: str, wanted: str) -> dict[str, FloatArray]:
    """The seconds of each site's jobs in the order in which they were asked."""
    _unchanged(path, wanted)
    return delay_table.read_recording(path)


def _ordered(
    took: Mapping[str, FloatArray], n_clients: int, sites: tuple[str, ...]
) -> tuple[FloatArray, ...]:
    if sites:
        for site in sites:
            if site not in took:
                raise ArgumentError(
                    f"delays must have every site's jobs, got none of {site!r} in the recording"
                )
        return tuple(took[site] for site in sites)
    if len(took) != n_clients:
        raise ArgumentError(
            f"delays must be a recording of the {n_clients} clients, got {len(took)} sites in it: "
            f"{', '.join(list(took)[:5])}"
        )
    return tuple(took[site] for site in sorted(took))


__all__ = ["LAWS", "Away", "Timing", "from_dict", "parse"]


def __dir__() -> list[str]:
    return __all__
