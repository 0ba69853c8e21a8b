"""The data that come with the package."""

from __future__ import annotations

from importlib import resources

from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.files import load


def mnist() -> Dataset:
    """MNIST, complete: 60,000 training and 10,000 test images of 28 x 28 bytes, 10 classes.

    CC BY-SA 3.0, Y. LeCun, C. Cortes and C. J. C. Burges; `data/README.md` beside this file.
    """
    source = resources.files("fedcommons.datasets") / "data" / "mnist.npz"
    with resources.as_file(source) as path:
        return load(path, name="mnist")
