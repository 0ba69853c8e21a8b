"""Numbers in Prometheus' text format: of a server's folder, or of a site's store.

They are read from what is kept on the disk, so that counters go on when a run is started again, and
a run that has died is seen. A site's app is a new process for every message: nothing else of it
lives that could be asked.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedcommons.errors import ArgumentError
from fedcommons.federate.server.overview import SIMULATED, Overview, Watcher
from fedcommons.federate.server.round_notes import RoundNote
from fedcommons.federate.site.tally import Tally

PATH, KIND = "/metrics", "text/plain; version=0.0.4; charset=utf-8"


def check_installed() -> None:
    if find_spec("prometheus_client") is None:
        raise ArgumentError("metrics needs more: pip install 'fedcommons[monitoring]'")


def text_of(folder: Path) -> bytes:
    """All numbers of the server's folder or the site's store."""
    library: Any = importlib.import_module("prometheus_client")
    families: Any = importlib.import_module("prometheus_client.core")
    registry = library.CollectorRegistry()
    registry.register(_Collector(list(_of(folder, families))))
    found: bytes = library.generate_latest(registry)
    return found


class _Collector:
    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def is_server(folder: Path) -> bool:
    return any((one / "format.json").exists() for one in (folder, folder / SIMULATED))


def _of(folder: Path, families: Any) -> Iterable[Any]:
    if is_server(folder):
        return _of_server(Watcher.of(folder).look(), families)
    return _of_site(Tally(folder).read(), families)


def _of_server(view: Overview, families: Any) -> Iterable[Any]:
    def gauge(name: str, words: str, value: float | None) -> Any:
        family = families.GaugeMetricFamily(f"fedcommons_{name}", words)
        if value is not None:
            family.add_metric([], value)
        return family

    def total(name: str, words: str, value: float) -> Any:
        return families.CounterMetricFamily(f"fedcommons_{name}", words, value=value)

    notes = [note for note in view.notes if note.sites]
    last = notes[-1] if notes else RoundNote(0)
    yield total("rounds", "Finished rounds of the training.", len(notes))
    yield total("round_seconds", "Seconds of all rounds.", sum(n.seconds or 0 for n in notes))
    yield gauge("last_round_seconds", "Seconds of the last round.", last.seconds)
    yield gauge("deadline_seconds", "How long the last round waited at most.", last.deadline)
    for what, words in (("sent", "Models sent to sites"), ("received", "Answers of sites")):
        n_bytes = sum(getattr(note, f"bytes_{what}") or 0 for note in notes)
        yield total(f"bytes_{what}", f"{words}, in bytes.", n_bytes)
    quarantined = sum(bool(site.quarantined) for site in view.sites)
    yield gauge("quarantined_sites", "Sites in quarantine.", quarantined)
    yield gauge("run_over", "1 if the run has ended as it should.", float(view.is_over))
    yield gauge("silent_seconds", "Since the server wrote something.", view.seconds_since)
    answers = families.CounterMetricFamily(
        "fedcommons_answers", "What became of sites in rounds.", labels=["site", "outcome"]
    )
    for site in view.sites:
        missing = site.asked - site.on_time - site.late
        for outcome, n in (("on time", site.on_time), ("late", site.late), ("missing", missing)):
            answers.add_metric([site.site, outcome], max(n, 0))
    yield answers
    by_site = {
        "straggler_prob": ("Estimated probability of missing a round.", "straggler_prob"),
        "late_seconds": ("By how much the last late answer was late.", "last_late_by"),
        "site_quarantined": ("1 if the site is in quarantine.", "quarantined"),
        "site_present": ("1 unless the site has left for good.", "present"),
    }
    for name, (words, attribute) in by_site.items():
        family = families.GaugeMetricFamily(f"fedcommons_{name}", words, labels=["site"])
        for site in view.sites:
            value = getattr(site, attribute)
            if value is not None:
                family.add_metric(
                    [site.site], float(bool(value) if isinstance(value, str) else value)
                )
        yield family
    measured = families.GaugeMetricFamily(
        "fedcommons_measured", "What sites measured last.", labels=["site", "metric"]
    )
    for site in view.sites:
        for name, value in site.measured.items():
            measured.add_metric([site.site, name], value)
    yield measured


def _of_site(tally: dict[str, dict[str, float]], families: Any) -> Iterable[Any]:
    for name, (words, labels) in Tally.FAMILIES.items():
        kind = families.GaugeMetricFamily if not labels else families.CounterMetricFamily
        family = kind(f"fedcommons_site_{name}", words, labels=labels or None)
        for key, value in tally.get(name, {}).items():
            family.add_metric(key.split("|") if labels else [], value)
        yield family
