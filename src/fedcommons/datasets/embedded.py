"""The data that come with the package."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

from fedcommons.datasets import scaling
from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.files import load
from fedcommons.datasets.heart_disease import heart
from fedcommons.datasets.reading import Reading, refuse_rules_of_tables
from fedcommons.errors import ArgumentError


def mnist() -> Dataset:
    """MNIST, complete: 60,000 training and 10,000 test images of 28 x 28 bytes, 10 classes.

    CC BY-SA 3.0, Y. LeCun, C. Cortes and C. J. C. Burges; `data/README.md` beside this file.
    """
    source = resources.files("fedcommons.datasets") / "data" / "mnist.npz"
    with resources.as_file(source) as path:
        return load(path, name="mnist")


EMBEDDED: dict[str, Callable[[], Dataset]] = {"mnist": mnist, "heart": heart}


def opened(
    name: str,
    reading: Reading = Reading(),  # noqa: B008
    *,
    seed: int = 0,
    numbers: bool = False,
) -> Dataset:
    """The embedded dataset of this name, or the one at this path, as `load` reads it."""
    if name not in EMBEDDED:
        return load(name, reading, seed=seed, numbers=numbers)
    refuse_rules_of_tables(reading, name)
    if reading.test_part is not None:
        raise ArgumentError(f"test_part must go with data in one piece, got {name}")
    found = EMBEDDED[name]()
    return scaling.standardised(found) if reading.scale == "standard" else found
