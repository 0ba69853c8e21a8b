"""The tables and the figure of docs/results.md, from the results folders of its studies.

    python -m experiments.results [--results results]

What every run reached goes into docs/data/STUDY.csv: a row for each curve, with the test examples
that each run got right after the last round (-1: the run diverged). The tables are made of these
files alone; without --results they are only written anew. Differences are paired: runs of a number
have the same examples, and with the same p the same stragglers.
"""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from experiments import clock_cells, coded_padded_fl

from fedcommons.checks import FloatArray
from fedcommons.claims import verdicts
from fedcommons.claims.verdicts import Component
from fedcommons.simulate.curves import Curve
from fedcommons.simulate.folder import Folder
from fedcommons.simulate.settings import value_types

ROOT = Path(__file__).parent.parent
DATA, DOCUMENT = ROOT / "docs" / "data", ROOT / "docs" / "results.md"
FIGURE = ROOT / "docs" / "images" / "results-models.png"
STUDIES = (
    "models-mnist",
    "models-fashion",
    "models-paper-rate-mnist",
    "models-paper-rate-fashion",
    "estimators",
    "stragglers",
    "wrong-p",
    "baselines-mnist",
    "baselines-fashion",
)
KINDS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: lambda text: text == "True",
}
CHANCE = 0.1  # what a run that diverged counts as
TEST_SIZE = 2000

Settings = dict[str, Any]
PARTITIONS: dict[str, Settings] = {
    "single-class": {"partition": "single-class"},
    "Dirichlet 0.1": {"partition": "dirichlet", "alpha": 0.1},
}
DATASETS = {"MNIST": "mnist", "Fashion-MNIST": "fashion"}
MODELS = ("softmax", "mlp", "cnn")
PROBS = (0.3, 0.5, 0.7)
FIFTH: Settings = {"proportion": 0.2, "copies": 3}
OWNER: Settings = {**FIFTH, "code": "owner-corrected"}
OURS: Settings = {**OWNER, "estimator": "memory", "warm": True}
OURS_5: Settings = {
    **FIFTH,
    "algorithm": "coded_fedavg",
    "local_steps": 5,
    "estimator": "memory",
    "warm": True,
}
SHARED: dict[str, Settings] = {
    "no sharing": {},
    "(0.2, 3)": FIFTH,
    "(0.5, 3)": {"proportion": 0.5, "copies": 3},
    "ours": OURS,
}
METHODS: dict[str, Settings] = {
    "gradient descent, nothing shared": {},
    "FedAvg, 1 step": {"algorithm": "fedavg"},
    "SCAFFOLD, 1 step": {"algorithm": "scaffold"},
    "FedAvg, 5 steps": {"algorithm": "fedavg", "local_steps": 5},
    **{
        f"FedProx, μ = {mu}, 5 steps": {"algorithm": "fedprox", "mu": mu, "local_steps": 5}
        for mu in (0.01, 0.1, 1.0)
    },
    "SCAFFOLD, 5 steps": {"algorithm": "scaffold", "local_steps": 5},
    "shared subset, c = 0.2, 1 step": {"algorithm": "shared_subset", "proportion": 0.2},
    "shared subset, c = 0.2, 5 steps": {
        "algorithm": "shared_subset",
        "proportion": 0.2,
        "local_steps": 5,
    },
    "hybrid, c = 0.2, 1 step": {"algorithm": "hybrid", "proportion": 0.2},
    "hybrid, c = 0.2, 5 steps": {"algorithm": "hybrid", "proportion": 0.2, "local_steps": 5},
    "the paper, (0.2, 3)": FIFTH,
    "owner-corrected code, (0.2, 3)": OWNER,
    "ours, but a cold start": {**OURS, "warm": False},
    "**ours**: owner-corrected code, warm memory, (0.2, 3)": OURS,
    "coded FedAvg, 5 steps, (0.2, 3)": {**FIFTH, "algorithm": "coded_fedavg", "local_steps": 5},
    "ours with 5 steps, but a cold start": {**OURS_5, "warm": False},
    "**ours with 5 steps**: coded FedAvg, warm memory, (0.2, 3)": OURS_5,
    "stochastic gradient coding, (1, 3)": {
        "algorithm": "stochastic_gradient_coding",
        "proportion": 1.0,
        "copies": 3,
    },
    "cyclic repetition, (1, 3)": {
        "algorithm": "cyclic_repetition",
        "proportion": 1.0,
        "copies": 3,
    },
    "fractional repetition, (1, 4)": {
        "algorithm": "fractional_repetition",
        "proportion": 1.0,
        "copies": 4,
    },
}


@dataclass(frozen=True, slots=True)
class Reached:
    """What the runs of a curve reached."""

    curve: Curve
    right: FloatArray  # test examples after the last round; -1 where the run diverged

    def has(self, settings: Settings) -> bool:
        return all(getattr(self.curve, name) == value for name, value in settings.items())

    @property
    def accuracy(self) -> FloatArray:
        return np.where(self.right < 0, CHANCE, self.right / TEST_SIZE)

    @property
    def diverged(self) -> int:
        return int(np.count_nonzero(self.right < 0))

    def __str__(self) -> str:
        return _points(Component.of("", self.accuracy)) + "†" * (self.diverged > 0)


def _points(component: Component, *, sign: bool = False) -> str:
    """In percentage points, with the standard error."""
    form = "+.1f" if sign else ".1f"
    return f"{100 * component.difference:{form}} ± {100 * component.sem:.1f}"


def collect(results: Path) -> None:
    """Write docs/data/STUDY.csv of every study that is finished."""
    for study in STUDIES:
        if not (results / study / "runs.parquet").exists():
            continue
        folder = Folder(results / study)
        curves = {curve.key: curve for curve in folder.study().curves}
        right: dict[str, list[int]] = {key: [] for key in curves}
        for row in folder.read_table("runs.parquet").to_pylist():
            n = -1 if row["diverged"] else round(row["final_accuracy"] * TEST_SIZE)
            right[row["curve"]].append(n)
        DATA.mkdir(exist_ok=True)
        with (DATA / f"{study}.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow([*(field.name for field in fields(Curve)), "right"])
            for key, curve in curves.items():
                table.writerow([*asdict(curve).values(), " ".join(map(str, right[key]))])


@cache
def reached(study: str) -> tuple[Reached, ...]:
    with (DATA / f"{study}.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return tuple(
        Reached(
            Curve(
                **{
                    name: KINDS[kind](row[name])
                    for name, kind in value_types(Curve).items()
                    if row.get(name)  # empty for None; what is not there is as it was
                }
            ),
            np.array(row["right"].split(), float),
        )
        for row in rows
    )


def the(study: str, **settings: Any) -> Reached:
    """The one curve with these settings; what is not named is as in the paper, but the rate."""
    ordinary = {f.name: f.default for f in fields(Curve) if f.name not in ("partition",)}
    if "learning_rate" not in settings:
        del ordinary["learning_rate"]
    wanted = {**ordinary, **settings}
    [found] = [r for r in reached(study) if r.has(wanted)]
    return found


def gain(study: str, better: Settings, worse: Settings, **settings: Any) -> FloatArray:
    """Run by run, how much more accurate."""
    return the(study, **settings, **better).accuracy - the(study, **settings, **worse).accuracy


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def differences(prefix: str) -> str:
    """What (0.5, 3) adds to no sharing."""
    columns = list(product(DATASETS, MODELS))
    rows = []
    for (name, partition), p in product(PARTITIONS.items(), PROBS):
        cells = [
            Component.of("", _difference(prefix, dataset, model, partition, p))
            for dataset, model in columns
        ]
        rows.append([name, p, *(_points(cell, sign=True) for cell in cells)])
    return table(["", "p", *(f"{dataset}, {model}" for dataset, model in columns)], rows)


def _difference(prefix: str, dataset: str, model: str, partition: Settings, p: float) -> FloatArray:
    return gain(
        f"{prefix}-{DATASETS[dataset]}",
        SHARED["(0.5, 3)"],
        SHARED["no sharing"],
        model=model,
        straggler_prob=p,
        **partition,
    )


def expectation(prefix: str) -> str:
    """Whether the difference is larger for more complex models and for harder data."""
    cells = list(product(PARTITIONS.values(), PROBS))

    def than_softmax(model: str) -> list[Component]:
        return [
            Component.of(
                model,
                _difference(prefix, dataset, model, *cell)
                - _difference(prefix, dataset, "softmax", *cell),
            )
            for dataset, cell in product(DATASETS, cells)
        ]

    def than_mnist(model: str) -> list[Component]:
        return [
            Component.of(
                model,
                _difference(prefix, "Fashion-MNIST", model, *cell)
                - _difference(prefix, "MNIST", model, *cell),
            )
            for cell in cells
        ]

    claims = {f"{model} against softmax": than_softmax(model) for model in MODELS[1:]}
    claims |= {f"Fashion-MNIST against MNIST, {model}": than_mnist(model) for model in MODELS}
    rows = [[claim, *_summary(components)] for claim, components in claims.items()]
    return table(["", "mean", "significantly larger", "significantly smaller"], rows)


def accuracies() -> str:
    rows = []
    for dataset, model, (name, partition), p in product(
        DATASETS, MODELS, PARTITIONS.items(), PROBS
    ):
        study = f"models-{DATASETS[dataset]}"
        at: Settings = {"model": model, "straggler_prob": p}
        cells = [the(study, **at, **partition, **method) for method in SHARED.values()]
        rows.append([dataset, model, name, p, *cells, the(study, **at, partition="iid")])
    return table(["data", "model", "partition", "p", *SHARED, "IID, no sharing"], rows)


def ours_against() -> str:
    """In how many settings ours is significantly better than others' sharing, and worse."""
    settings = list(product(DATASETS, MODELS, PARTITIONS.values(), PROBS))
    others: dict[str, Settings] = {
        "the paper, (0.2, 3)": FIFTH,
        "the paper, (0.5, 3)": SHARED["(0.5, 3)"],
        "IID, no sharing": {"partition": "iid", "alpha": 0.0},
    }
    rows = []
    for name, other in others.items():
        components = []
        for dataset, model, partition, p in settings:
            study, at = f"models-{DATASETS[dataset]}", {"model": model, "straggler_prob": p}
            mine = the(study, **at, **partition, **OURS).accuracy
            components.append(
                Component.of("", mine - the(study, **(at | partition | other)).accuracy)
            )
        rows.append([name, *_summary(components)])
    return table(["ours against", *SUMMARY], rows)


SUMMARY = ("mean", "significantly better", "significantly worse")


def _summary(components: Sequence[Component]) -> tuple[str, str, str]:
    """Mean of the differences; in how many settings it is significantly positive, and negative."""
    above, below = (
        int((verdicts.holm([c.tail(side) for c in components]) < verdicts.LEVEL).sum())
        for side in (1, -1)
    )
    n = len(components)
    mean = 100 * np.mean([c.difference for c in components])
    return f"{mean:+.1f}", f"{above} of {n}", f"{below} of {n}"


def memory_and_code() -> str:
    methods: dict[str, Settings] = {
        "the paper": {},
        "owner-corrected code": {"code": "owner-corrected"},
        "memory": {"estimator": "memory"},
        "warm memory": {"estimator": "memory", "warm": True},
        "both": {"code": "owner-corrected", "estimator": "memory"},
        "both, warm": {"code": "owner-corrected", "estimator": "memory", "warm": True},
        "nobody missing": {"estimator": "wait_for_all"},
    }
    rows = []
    for model, batch, rate in product(MODELS, (None, 10), (0.1, 0.3, 1.0)):
        at: Settings = {
            **FIFTH,
            "partition": "single-class",
            "straggler_prob": 0.7,
            "model": model,
            "batch_size": batch,
            "learning_rate": rate,
        }
        cells = [the("estimators", **at, **method) for method in methods.values()]
        rows.append([model, batch or "all", rate, *cells])
    return table(["model", "batch", "η", *methods], rows)


def lasting_absences() -> str:
    kinds: dict[str, Settings] = {
        "independent": {},
        "5 rounds": {"stragglers": "markov", "mean_absence": 5.0},
        "20 rounds": {"stragglers": "markov", "mean_absence": 20.0},
    }
    columns = list(product(PARTITIONS.items(), kinds.items()))
    rows = []
    for name, method in METHODS.items():
        if not _has("stragglers", method):
            continue
        cells = [
            the("stragglers", straggler_prob=0.5, **partition, **kind, **method)
            for (_, partition), (_, kind) in columns
        ]
        rows.append([name, *cells])
    return table(["", *(f"{p}, {k}" for (p, _), (k, _) in columns)], rows)


def _has(study: str, method: Settings) -> bool:
    """Whether the study has the method; it may differ from the paper's in these settings alone."""
    names = {name for settings in METHODS.values() for name in settings}
    wanted = {f.name: f.default for f in fields(Curve) if f.name in names} | method
    return any(r.has(wanted) for r in reached(study))


def assumed() -> str:
    methods: dict[str, Settings] = {
        "the paper": {},
        "owner-corrected code": {"code": "owner-corrected"},
        "warm memory": {"estimator": "memory", "warm": True},
        "both": {"code": "owner-corrected", "estimator": "memory", "warm": True},
    }
    probs = (0.1, 0.3, 0.5, 0.7, 0.9)
    rows = []
    for model, rate in product(MODELS[:2], (0.1, 1.0)):
        at: Settings = {
            **FIFTH,
            "partition": "single-class",
            "straggler_prob": 0.5,
            "model": model,
            "learning_rate": rate,
        }
        average = the("wrong-p", **at, estimator="responder_average")
        for name, method in methods.items():
            cells = [the("wrong-p", **at, **method, assumed_prob=p) for p in probs]
            rows.append([model, rate, name, *cells, average])
    header = [f"assumed {p}" for p in probs]
    return table(["model", "η", "", *header, "average over responders"], rows)


def baselines(dataset: str) -> str:
    study = f"baselines-{DATASETS[dataset]}"
    columns = list(product(MODELS[:2], PARTITIONS.items(), (0.3, 0.7)))
    rows = []
    for name, method in METHODS.items():
        if not _has(study, method):
            continue
        cells = [
            the(study, model=model, straggler_prob=p, **partition, **method)
            for model, (_, partition), p in columns
        ]
        rows.append([name, *cells])
    return table(["", *(f"{m}, {n}, p = {p}" for m, (n, _), p in columns)], rows)


def losses(ours: Settings, names: Iterable[str]) -> str:
    """In how many settings methods are significantly better than ours, and worse."""
    settings = list(product(DATASETS, MODELS[:2], PARTITIONS, (0.3, 0.7)))
    rows = []
    for name in names:
        method = METHODS[name]
        if method == ours or not _has("baselines-mnist", method):
            continue
        components = [
            Component.of(
                f"{dataset}, {model}, {partition}, p = {p}",
                gain(
                    f"baselines-{DATASETS[dataset]}",
                    method,
                    ours,
                    model=model,
                    straggler_prob=p,
                    **PARTITIONS[partition],
                ),
            )
            for dataset, model, partition, p in settings
        ]
        most = max(components, key=lambda c: c.difference)
        rows.append([name, *_summary(components), f"{_points(most, sign=True)} ({most.name})"])
    return table(["", *SUMMARY, "at its best"], rows)


def seconds(model: str) -> str:
    """To the target, by the clock."""
    return table(clock_cells.HEADER, clock_cells.rows(model))


TABLES: dict[str, Callable[[], str]] = {
    "differences": lambda: differences("models"),
    "expectation": lambda: expectation("models"),
    "differences-paper-rate": lambda: differences("models-paper-rate"),
    "expectation-paper-rate": lambda: expectation("models-paper-rate"),
    "accuracies": accuracies,
    "ours": ours_against,
    "estimators": memory_and_code,
    "stragglers": lasting_absences,
    "wrong-p": assumed,
    "baselines-mnist": lambda: baselines("MNIST"),
    "baselines-fashion": lambda: baselines("Fashion-MNIST"),
    "losses": lambda: losses(OURS, METHODS),
    **{f"clock-{model}": partial(seconds, model) for model in MODELS},
    "clock-untuned": lambda: table(clock_cells.UNTUNED, clock_cells.untuned_rows()),
    "coded-padded-fl": lambda: table(coded_padded_fl.HEADER, coded_padded_fl.rows()),
    "losses-5": lambda: losses(OURS_5, [name for name in METHODS if "5 steps" in name]),
}


def with_tables(text: str) -> str:
    """The document with its tables as the data have them."""

    def fresh(mark: re.Match[str]) -> str:
        return f"<!-- table: {mark[1]} -->\n{TABLES[mark[1]]()}\n<!-- end -->"

    return re.sub(r"<!-- table: ([a-z0-9-]+) -->\n.*?<!-- end -->", fresh, text, flags=re.DOTALL)


def draw(results: Path) -> None:
    """Accuracy over the rounds at p = 0.7 with 95 % bands, for all data, partitions and models."""
    from matplotlib.figure import Figure as Picture

    from fedcommons.figures import series, style

    with style.applied():
        picture = Picture(figsize=(style.FULL_WIDTH, 7.2), layout="constrained")
        rows = list(product(DATASETS, PARTITIONS))
        axes = picture.subplots(len(rows), len(MODELS), sharex=True, sharey=True)
        labels = list(SHARED)
        for (dataset, name), line in zip(rows, axes, strict=True):
            folder = Folder(results / f"models-{DATASETS[dataset]}")
            lines = [
                one
                for figure in folder.study().figures
                for one in series.read(figure, folder.read_table("curves.parquet"))
            ]
            for model, panel in zip(MODELS, line, strict=True):
                for label, method in SHARED.items():
                    wanted = {"model": model, "straggler_prob": 0.7, "proportion": 0.0}
                    wanted |= {"code": "equal-split"} | PARTITIONS[name] | method
                    [one] = [s for s in lines if wanted.items() <= asdict(s.curve).items()]
                    mean, half = one.mean("accuracy"), one.half_width("accuracy")
                    style.band(panel, np.arange(len(mean)), mean, half, style.colour(label, labels))
                panel.set_title(f"{dataset}, {name}, {model}")
                panel.set_xlim(0, len(mean) - 1)
            line[0].set_ylabel("test accuracy")
        for panel in axes[-1]:
            panel.set_xlabel("communication round")
        handles = [
            axes[0, 0].plot([], [], color=style.colour(label, labels), label=label)[0]
            for label in labels
        ]
        picture.legend(handles=handles, loc="outside upper center", ncols=len(labels))
        picture.savefig(FIGURE, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, help="where the studies' results folders are")
    options = parser.parse_args()
    if options.results:
        collect(options.results)
        clock_cells.collect(options.results)
        coded_padded_fl.collect(options.results)
        draw(options.results)
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
