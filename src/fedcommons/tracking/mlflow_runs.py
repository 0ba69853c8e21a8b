"""Events as metrics of MLflow: a run for the whole, and one in it for each site or line.

A study or training that goes on is found again by its key, and its runs get what is new.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fedcommons.tracking.events import About, Event
from fedcommons.tracking.sinks import MOST_SERIES

KEY = "fedcommons.key"
AT_ONCE = 1000  # metrics in a request, MLflow's limit
LONGEST = 6000  # characters of a setting, MLflow's limit
QUIET = {  # MLflow sends usage data unless it is told not to, and tries for many minutes
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
}


class Sink:
    """A run of the experiment that has the name of the study or federation."""

    def __init__(self, where: str, about: About) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        self._mlflow: Any = importlib.import_module("mlflow")
        self._entities: Any = importlib.import_module("mlflow.entities")
        self._client = self._mlflow.MlflowClient(tracking_uri=where)
        self.about = about
        self._runs: dict[str, str] = {}  # ids of MLflow's runs, by whose they are
        self._experiment = self._find_experiment(named(about.name))

    def _find_experiment(self, name: str) -> str:
        known = self._client.get_experiment_by_name(name)
        return str(known.experiment_id if known else self._client.create_experiment(name))

    def write(self, events: Sequence[Event]) -> None:
        by_run: dict[str, list[Any]] = {}
        for event in events:
            if (run := self._run(event.of)) is not None:
                by_run.setdefault(run, []).extend(self._metrics(event))
        for run, metrics in by_run.items():
            for start in range(0, len(metrics), AT_ONCE):
                self._client.log_batch(run, metrics[start : start + AT_ONCE])

    def _metrics(self, event: Event) -> list[Any]:
        when = int(1000 * event.at)
        return [
            self._entities.Metric(named(f"{event.kind}/{name}"), value, when, event.step)
            for name, value in event.values.items()
        ]

    def _run(self, of: str) -> str | None:
        """The run of a site or line, or of all; None beyond as many as can be looked at."""
        if of not in self._runs:
            if of and len(self._runs) > MOST_SERIES:
                return None
            tags = {KEY: self.about.key_of(of)}
            if of:
                tags["mlflow.parentRunId"] = str(self._run(""))
            self._runs[of] = self._find(tags) or self._begin(of, tags)
        return self._runs[of]

    def _find(self, tags: Mapping[str, str]) -> str | None:
        wanted = f"tags.`{KEY}` = '{tags[KEY]}'"
        found = self._client.search_runs([self._experiment], wanted, max_results=1)
        if not found:
            return None
        run = str(found[0].info.run_id)
        self._client.update_run(run, "RUNNING")
        return run

    def _begin(self, of: str, tags: Mapping[str, str]) -> str:
        created = self._client.create_run(
            self._experiment, tags=dict(tags), run_name=of or self.about.name
        )
        run = str(created.info.run_id)
        if not of:
            settings = [
                self._entities.Param(named(name), value[:LONGEST])
                for name, value in self.about.settings.items()
            ]
            self._client.log_batch(run, params=settings)
        return run

    def close(self) -> None:
        for run in self._runs.values():
            self._client.set_terminated(run)


def named(name: str) -> str:
    """A name that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)[:250]
