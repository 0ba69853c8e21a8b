"""Models: what a client computes on its examples."""

from fedcommons.tasks import softmax

__all__ = ["softmax"]


def __dir__() -> list[str]:
    return __all__
