"""Models: what a client computes on its examples."""

from fedcommons.tasks import softmax

__all__ = ["softmax"]
