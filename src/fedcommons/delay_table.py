"""How long sites take: a table from a CSV file with a line for each, or published; a recording.

The columns, in small or capital letters, with hyphens, underscores or spaces:

- `multiply-adds` or `examples`: how many a second the site works through; one of the two is needed;
- `spread`: how much computing times scatter, as in `delays.Law`;
- `stall`: mean seconds of stalls whatever the work;
- `link`: seconds that both ways take together; `failures`: how often an attempt fails;
- `away`: the share of the time that it is away; `away-seconds`: how long at a time on average.

All but the first are 0 where the file has no such column. `site` names the sites.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedcommons import checks, delays, site_lines
from fedcommons.checks import FloatArray
from fedcommons.delays import CODED_PADDED_FL, Law, Units
from fedcommons.errors import ArgumentError, DataError
from fedcommons.parquet import read_parquet
from fedcommons.site_lines import SiteLines

PUBLISHED = "coded-padded-fl"
RATES = {  # a column's names, and whether it counts examples
    **dict.fromkeys(("multiply_adds", "multiply_adds_a_second", "multiply_adds_per_second"), False),
    **dict.fromkeys(("examples", "examples_a_second", "examples_per_second"), True),
}
COLUMNS = {  # attribute, and the names of its column
    "spread": ("spread",),
    "stall": ("stall", "stalls", "stall_seconds"),
    "link": ("link", "link_seconds"),
    "failure": ("failure", "failures", "link_failures"),
    "away": ("away", "away_share"),
    "away_seconds": ("away_seconds", "mean_seconds_away"),
}
RECORDED = ("site", "asked_at", "took")  # the columns of a recording
OF_A_FEDERATION = ("site", "round", "seconds")  # of a federation's answers.parquet
ROUNDED = 1e-3  # seconds, to which it rounds
BELOW_1 = ("failure", "away")


@dataclass(frozen=True, slots=True, eq=False)
class DelayTable:
    """How long sites take.

    Attributes:
        names: of the N sites.
        rate: (N,) multiply-adds a second, or examples.
        of_examples: whether rates count examples.
        spread, stall, link, failure: (N,) each, as in `delays.Law`.
        away: (N,) the share of the time that each is away.
        away_seconds: (N,) how long at a time, on average.
    """

    names: tuple[str, ...]
    rate: FloatArray
    of_examples: bool
    spread: FloatArray
    stall: FloatArray
    link: FloatArray
    failure: FloatArray
    away: FloatArray
    away_seconds: FloatArray

    def __len__(self) -> int:
        return len(self.names)

    @property
    def named(self) -> bool:
        """Whether sites have names, not just numbers."""
        return self.names != tuple(f"site {k}" for k in range(1, len(self) + 1))

    def multiply_adds(self, per_example: float) -> FloatArray:
        """Every site's multiply-adds a second, if an example takes `per_example`: (N,)."""
        per_example = checks.positive("multiply_adds", per_example)
        return self.rate * per_example if self.of_examples else self.rate

    def law(
        self, per_example: float, units: Units, *, service: str = "exponential", tail: float = 1.5
    ) -> Law:
        """How long jobs take, if an example takes `per_example` multiply-adds."""
        rate = self.multiply_adds(per_example)
        return Law(rate, self.spread, self.stall, self.link, self.failure, units, service, tail)

    def of(self, names: tuple[str, ...]) -> DelayTable:
        """The table with these sites in this order; each must be in it."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ArgumentError(
                f"delays must have a line for every site, got none for {missing[0]!r}"
            )
        order = [self.names.index(name) for name in names]
        arrays = {name: getattr(self, name)[order] for name in ("rate", *COLUMNS)}
        return DelayTable(names=names, of_examples=self.of_examples, **arrays)


def read(path: str | os.PathLike[str]) -> DelayTable:
    """The table in a CSV file; what is wrong with a line is said with the line and the site."""
    lines = site_lines.read(path, "delays")
    rates = [k for k, name in enumerate(lines.header) if site_lines.plain_name(name) in RATES]
    if len(rates) != 1:
        raise DataError(
            f"{lines.path} must have one column of rates, 'multiply-adds' or 'examples' a second, "
            f"got {[lines.header[k] for k in rates] or list(lines.header)}"
        )
    found, used = {}, {*rates, lines.names_column}
    for name, columns in COLUMNS.items():
        column = lines.column(*columns)
        found[name] = _checked(lines, name, column)
        used.add(column)
    for k, name in enumerate(lines.header):
        if k not in used:
            known = ", ".join(columns[0].replace("_", "-") for columns in COLUMNS.values())
            raise DataError(
                f"{lines.path} must have no other columns than site, multiply-adds or examples, "
                f"{known}, got {name!r}"
            )
    rate = np.array(lines.numbers(rates[0]))
    for row in np.flatnonzero(~((rate > 0) & np.isfinite(rate))).tolist():
        header = lines.header[rates[0]]
        raise DataError(f"{lines.where(row)}: {header} must be > 0, got {rate[row]:g}")
    for row in np.flatnonzero((found["away"] > 0) & ~(found["away_seconds"] > 0)).tolist():
        raise DataError(
            f"{lines.where(row)}: away-seconds must be > 0 for a site that is away "
            f"{found['away'][row]:.0%} of the time, got {found['away_seconds'][row]:g}"
        )
    of_examples = RATES[site_lines.plain_name(lines.header[rates[0]])]
    return DelayTable(lines.names, rate, of_examples, **found)


def _checked(lines: SiteLines, name: str, column: int | None) -> FloatArray:
    """A column's numbers, 0 without one."""
    if column is None:
        return np.zeros(len(lines.rows))
    values = np.array(lines.numbers(column))
    wrong = ~((values >= 0) & (values < (1 if name in BELOW_1 else np.inf)))
    for row in np.flatnonzero(wrong).tolist():
        rule = "in [0, 1)" if name in BELOW_1 else ">= 0 and finite"
        raise DataError(
            f"{lines.where(row)}: {lines.header[column]} must be {rule}, got {values[row]:g}"
        )
    return values


def read_recording(path: str | os.PathLike[str]) -> dict[str, FloatArray]:
    """The seconds of each site's jobs in the order in which they were asked, from a Parquet file.

    Its columns are `RECORDED`: when a site was asked, and how long its answer took. The
    `answers.parquet` of a federation serves as well: answers that came count, late ones too.
    """
    path = checks.path("delays", path)
    table = read_parquet(path, DataError)
    missing = [name for name in RECORDED if name not in table.column_names]
    try:
        if missing and set(OF_A_FEDERATION) <= set(table.column_names):
            columns = _of_a_federation(table.to_pylist())
        elif missing:
            raise DataError(
                f"{path} must have the columns {', '.join(RECORDED)}, got none called "
                f"{missing[0]!r}"
            )
        else:
            columns = [table.column(name).to_numpy(zero_copy_only=False) for name in RECORDED]
        sites = np.asarray(columns[0]).astype(str)
        asked, took = map(checks.finite, RECORDED[1:], columns[1:])
    except (ArgumentError, TypeError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
    found = {}
    for site in dict.fromkeys(sites.tolist()):
        rows = np.flatnonzero(sites == site)
        if (np.diff(asked[rows]) < 0).any():
            row = int(rows[1:][np.diff(asked[rows]) < 0][0])
            raise DataError(
                f"{path} must not go back in time: row {row + 1} of {site} was asked at "
                f"{asked[row]:g}, after a later one"
            )
        if not (took[rows] > 0).all():
            raise DataError(f"{path}: took must be > 0, got {took[rows].min():g} of {site}")
        found[site] = took[rows]
    return found


def _of_a_federation(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Its answers as the columns of a recording: asked in a round instead of at a time."""
    came = [row for row in rows if row["seconds"] is not None]
    return [
        [row["site"] for row in came],
        [float(row.get("asked_in") or row["round"]) for row in came],
        [max(float(row["seconds"]), ROUNDED / 2) for row in came],
    ]


def published(n_clients: int) -> DelayTable:
    """The table of CodedPaddedFL for N clients: see `delays.coded_padded_fl`."""
    rate = delays.coded_padded_fl(n_clients)
    zero = np.zeros(len(rate))
    names = tuple(f"site {k}" for k in range(1, len(rate) + 1))
    constants = {name: np.full(len(rate), value) for name, value in CODED_PADDED_FL.items()}
    return DelayTable(
        names, rate, of_examples=False, stall=zero, away=zero, away_seconds=zero, **constants
    )


__all__ = ["PUBLISHED", "RECORDED", "DelayTable", "published", "read", "read_recording"]


def __dir__() -> list[str]:
    return __all__
