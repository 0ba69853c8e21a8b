"""What results keep and say of their data: the sites, and what was made of columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedcommons.datasets import Dataset, scaling

SHOWN = 12  # sites or categories that a line names at most


def about(dataset: Dataset) -> dict[str, Any]:
    """The entry `data` of run.json; nothing where there is nothing to say."""
    found = dict(dataset.encodings)
    splits = {"train": dataset.site_train, "test": dataset.site_test}
    counts = {
        split: np.bincount(sites, minlength=len(dataset.sites)).tolist()
        for split, sites in splits.items()
        if sites is not None
    }
    if counts:
        found["sites"] = {
            name: {split: of_sites[k] for split, of_sites in counts.items()}
            for k, name in enumerate(dataset.sites)
        }
    if remark := scaling.remark(dataset):
        found["notes"] = [*found.get("notes", ()), remark]
    return {"data": {**found, "words": _words(found)}} if found else {}


def _words(found: Mapping[str, Any]) -> list[str]:
    """The entry in sentences."""
    said = []
    if "sites" in found:
        sizes = [f"{name} {' + '.join(map(str, n.values()))}" for name, n in found["sites"].items()]
        said.append(f"{len(sizes)} sites, training + test examples: {_some(sizes)}")
    if "label" in found:
        column, values = found["label"]["column"], found["label"]["values"]
        numbers = [f"{k} is {value}" for k, value in enumerate(values)]
        said.append(f"labels from column {column}: {_some(numbers)}")
    for column, values in found.get("categories", {}).items():
        said.append(f"column {column} is {len(values)} inputs, one for each of {_some(values)}")
    for column, mean in found.get("means", {}).items():
        said.append(f"missing values of column {column} count as {mean:g}, the training mean")
    if "scale" in found:
        said.append(f"inputs have mean 0 and standard deviation 1 over {found['scale']['over']}")
    return [*said, *found.get("notes", ())]


def _some(values: list[str]) -> str:
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return ", ".join(map(str, values[:SHOWN])) + more
