"""Data to train on: those that come with the package, or your own."""

from fedcommons.datasets.dataset import Dataset
from fedcommons.datasets.embedded import EMBEDDED, mnist, opened
from fedcommons.datasets.files import digest, load
from fedcommons.datasets.from_arrays import save
from fedcommons.datasets.from_hugging_face import from_huggingface, from_partitions
from fedcommons.datasets.from_torch import from_torch
from fedcommons.datasets.heart_disease import heart
from fedcommons.datasets.reading import Reading

__all__ = [
    "EMBEDDED",
    "Dataset",
    "Reading",
    "digest",
    "from_huggingface",
    "from_partitions",
    "from_torch",
    "heart",
    "load",
    "mnist",
    "opened",
    "save",
]


def __dir__() -> list[str]:
    return __all__
