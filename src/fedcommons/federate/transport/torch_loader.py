"""A site's examples as a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol.refusals import SeveralStepsRefused
from fedcommons.federate.transport.weighted_examples import WeightedExamples


def data_loader(
    held: WeightedExamples, *, batch_size: int, shuffle: bool, weights: bool, **options: Any
) -> Any:
    """A DataLoader of (x, y, weight), or without weights of (x, y) in proportion to them.

    `options` are further arguments of torch's DataLoader.
    """
    try:
        import torch
        from torch.utils.data import DataLoader, TensorDataset
    except ImportError:
        raise ArgumentError(
            "dataloader must have PyTorch: pip install 'fedcommons[torch]', or use site.batches"
        ) from None
    if held.one_step and not weights:
        raise SeveralStepsRefused(
            "weights must be True with this code, whose weights may be negative, got False"
        )
    held.check_number(len(held) if weights else held.n_in_proportion)
    x, y = torch.from_numpy(held.x), torch.from_numpy(np.ascontiguousarray(held.y))
    if not weights:
        if not shuffle:
            raise ArgumentError("shuffle must be True without weights, which a draw stands for")
        loader = DataLoader(TensorDataset(x, y), batch_size, sampler=InProportion(held), **options)
    else:
        weight = torch.from_numpy(held.weight.astype(np.float32))
        order = torch.Generator()
        if held.rng is not None:
            order.manual_seed(int(held.rng.integers(2**63)))
        loader = DataLoader(
            TensorDataset(x, y, weight), batch_size, shuffle=shuffle, generator=order, **options
        )
    held.check_steps(len(loader))
    return loader


class InProportion:
    """A sampler for torch: every epoch a new draw in proportion to the weights."""

    def __init__(self, held: WeightedExamples) -> None:
        self._held = held

    def __len__(self) -> int:
        return self._held.n_in_proportion

    def __iter__(self) -> Iterator[int]:
        return iter(self._held.in_proportion().tolist())
