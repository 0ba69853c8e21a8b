"""A site's examples as a torch DataLoader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fedcommons.errors import ArgumentError
from fedcommons.federate.protocol.refusals import SeveralStepsRefused
from fedcommons.federate.transport.app_data import example_parts
from fedcommons.federate.transport.weighted_examples import WeightedExamples

try:
    import torch
    from torch.utils.data import DataLoader, RandomSampler, SequentialSampler, TensorDataset
except ImportError:
    raise ArgumentError(
        "dataloader must have PyTorch: pip install 'fedcommons[torch]', or use site.batches"
    ) from None


def data_loader(
    held: WeightedExamples, *, batch_size: int, shuffle: bool, weights: bool, **options: Any
) -> Any:
    """A DataLoader of (x, y, weight), or without weights of (x, y) in proportion to them.

    `options` are further arguments of torch's DataLoader.
    """
    x, y = torch.from_numpy(held.x), torch.from_numpy(np.ascontiguousarray(held.y))
    if not weights:
        if not shuffle:
            raise ArgumentError("shuffle must be True without weights, which a draw stands for")
        return _in_proportion(held, TensorDataset(x, y), batch_size, options)
    weight = torch.from_numpy(held.weight.astype(np.float32))
    order = torch.Generator()
    if held.rng is not None:
        order.manual_seed(int(held.rng.integers(2**63)))
    loader = DataLoader(
        TensorDataset(x, y, weight), batch_size, shuffle=shuffle, generator=order, **options
    )
    held.check_steps(len(loader))
    return loader


def loader_like(held: WeightedExamples, own: Any) -> Any:
    """The app's own loader with what the site holds in place of its own examples.

    Batches have the form and the size of `own`'s, and its collate function makes them. Examples are
    drawn in proportion to their shares; where these are all 1, it brings what `own` would, shuffled
    or not, by torch's seed.
    """
    if not isinstance(own, DataLoader):
        raise ArgumentError(f"like must be a DataLoader, got {type(own).__name__}")
    if own.batch_size is None or not isinstance(own.sampler, RandomSampler | SequentialSampler):
        raise ArgumentError(
            "like must be a loader with a batch_size and no sampler of its own, which a draw in "
            f"proportion to shares would replace, got {type(own.sampler).__name__}"
        )
    options = {
        name: getattr(own, name)
        for name in ("collate_fn", "drop_last", "num_workers", "pin_memory", "worker_init_fn")
    }
    dataset = _dataset_like(held, own.dataset)
    if (held.shares != 1).any():
        # BatchNorm fails on a batch of one example: no loader has one that the app's has not.
        sized: Any = own.dataset
        never_one = len(sized) > 0 and len(sized) % own.batch_size != 1 % own.batch_size
        return _in_proportion(held, dataset, own.batch_size, options, never_one=never_one)
    shuffle = isinstance(own.sampler, RandomSampler)
    loader = DataLoader(
        dataset, own.batch_size, shuffle=shuffle, generator=own.generator, **options
    )
    held.check_steps(len(loader))
    return loader


def _in_proportion(
    held: WeightedExamples,
    dataset: Any,
    batch_size: int,
    options: Mapping[str, Any],
    *,
    never_one: bool = False,
) -> Any:
    if held.one_step:
        raise SeveralStepsRefused(
            "weights must be True with this code, whose weights may be negative, got False"
        )
    n = held.n_in_proportion
    held.check_number(n)
    if n < batch_size:  # else drop_last would leave nothing to train on
        options = {**options, "drop_last": False}
    left_over = never_one and n > batch_size and n % batch_size == 1
    return DataLoader(dataset, batch_size, sampler=InProportion(held, n - left_over), **options)


def _dataset_like(held: WeightedExamples, own: Any) -> Any:
    """What the site holds, in the form of the app's own dataset."""
    x, y = torch.from_numpy(held.x), np.ascontiguousarray(held.y)
    example = own[0] if len(own) else None
    if example is not None:
        label = np.asarray(example_parts(example)[1])
        y = y.astype(label.dtype).reshape(len(y), *label.shape)
    if isinstance(example, Mapping):
        return NamedExamples(tuple(example), x, torch.from_numpy(y))
    return TensorDataset(x, torch.from_numpy(y))


class NamedExamples(torch.utils.data.Dataset[Any]):
    """Examples as mappings of an input and a label, as Hugging Face's datasets have them."""

    def __init__(self, names: tuple[str, ...], x: torch.Tensor, y: torch.Tensor) -> None:
        self.names, self.x, self.y = names, x, y

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, k: int) -> dict[str, torch.Tensor]:
        return dict(zip(self.names, (self.x[k], self.y[k]), strict=True))


class InProportion:
    """A sampler for torch: every epoch so many of a new draw in proportion to the weights."""

    def __init__(self, held: WeightedExamples, n: int) -> None:
        self._held, self._n = held, n

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[int]:
        return iter(self._held.in_proportion()[: self._n].tolist())
