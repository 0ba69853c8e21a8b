"""Data to train on: MNIST, which comes with the package, or your own files."""

from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.embedded import mnist
from fedcommons.datasets.files import digest, load

__all__ = ["Dataset", "digest", "load", "mnist"]


def __dir__() -> list[str]:
    return __all__
