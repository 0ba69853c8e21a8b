"""Whether a study can be run: what is refused or pointed out before anything is written."""

from __future__ import annotations

import functools
import os

import numpy as np

from fedcommons import shown
from fedcommons.datasets import Dataset
from fedcommons.errors import ArgumentError, DataError, StudyError
from fedcommons.simulate import batched, example_space, models, timelines
from fedcommons.simulate.definition import Study
from fedcommons.simulate.draws import main_class, share, training_set
from fedcommons.simulate.runner import HELD_OUT, study_loss
from fedcommons.simulate.timing import Timing
from fedcommons.streams import stream
from fedcommons.tasks.losses import far_from_standard

logger = shown.logger(__name__)


def check_fits(study: Study, dataset: Dataset) -> None:
    """Refuse a study that its dataset cannot feed, before anything is written."""
    if not len(dataset.y_test):
        if study.pool == "tuning":
            raise StudyError(
                f"tune must have a class with at least {HELD_OUT} training examples, one of so "
                f"many is held out, got fewer of each in dataset {study.dataset}"
            )
        raise StudyError(
            f"dataset {study.dataset} must have test examples, got none; say which they are with "
            "split_column or test_part in [data], or give a folder with train.csv and test.csv "
            "(or .parquet)"
        )
    _check_sites(study, dataset)
    loss = study_loss(study)
    if loss.kind == "classes" and len(np.unique(dataset.y_train)) < 2:
        raise DataError(f"dataset {study.dataset} must have at least two classes, got one")
    if far := far_from_standard(loss, dataset):
        _warn_once(far)
    for name in sorted({curve.model for curve in study.curves}):
        model = models.load(name, dataset.x_train.shape[1:], loss)
        n_params = len(model.initial(rng=stream(study.seed, "model", 0)))
        _check_memory_of_clients(study, name, n_params)
    _check_memory_of_examples(study, dataset)
    if study.clock is not None:
        _check_clients_can_answer(study, study.clock, dataset)
    by_labels = dataset.strata_train is None
    sizes = np.bincount(dataset.groups, minlength=dataset.n_classes if by_labels else 0)
    label, group = int(sizes.argmin()), "class" if by_labels else "stratum"
    if study.class_size and not sizes[label]:
        raise DataError(
            f"dataset {study.dataset} must have training examples of every {group} from 0 to "
            f"{len(sizes) - 1}, got none of {group} {label}"
        )
    if study.class_size is not None and study.class_size > sizes[label]:
        raise StudyError(
            f"class_size must be at most the {sizes[label]} training examples of the smallest "
            f"{group}, {label}, got {study.class_size}"
        )


@functools.cache
def _warn_once(words: str) -> None:
    logger.warning("%s", words)


def _check_sites(study: Study, dataset: Dataset) -> None:
    """Refuse natural partitions of data whose sites are not known, or are not the clients."""
    if not any(curve.is_natural for curve in study.curves):
        return
    if not dataset.sites:
        raise StudyError(
            f"partition site must come with data that name the site of each example, got dataset "
            f"{study.dataset} without; give site_column in [data], or in an .npz file the array "
            "site, beside a split site_train and site_test"
        )
    if len(dataset.sites) != study.clients:
        raise StudyError(
            f"clients must be the {len(dataset.sites)} sites of dataset {study.dataset} with "
            f"partition site, or be left out, got {study.clients}"
        )


def _check_memory_of_clients(study: Study, model: str, n_params: int) -> None:
    """Refuse what would remember more of its clients than this machine can hold."""
    curves = [curve for curve in study.batched_curves if curve.model == model]
    n_rounds = None if study.clock is not None else study.rounds
    needed = batched.remembered_bytes(curves, study.block_size, study.clients, n_params, n_rounds)
    if needed > _machine_bytes():
        raise StudyError(
            f"model {model} must leave room in memory: with {n_params} parameters and "
            f"{study.clients} clients its {len(curves)} curves would remember "
            f"{needed / 1e9:.1f} GB of this machine's {_machine_bytes() / 1e9:.1f} GB (memory and "
            "scaffold keep an answer of every client); take fewer clients, or such curves in "
            "studies of their own"
        )


def _check_memory_of_examples(study: Study, dataset: Dataset) -> None:
    """Refuse more examples, rounds and curves in example space than this machine can hold."""
    n_curves = len(study.curves) - len(study.batched_curves)
    if study.engine == "plain" or not n_curves:
        return
    all_examples = len(dataset.y_train)
    n_examples = study.class_size * dataset.n_classes if study.class_size else all_examples
    needed = example_space.needed_bytes(
        n_curves,
        n_clients=study.clients,
        n_examples=n_examples,
        n_classes=dataset.n_classes,
        n_rounds=study.rounds,
    )
    if needed > _machine_bytes():
        raise StudyError(
            f"a run must leave room in memory: with {n_examples} examples, {study.clients} "
            f"clients, {study.rounds} rounds and {n_curves} curves it would take "
            f"{needed / 1e9:.1f} GB of this machine's {_machine_bytes() / 1e9:.1f} GB; take fewer "
            'of them, or engine = "batched"'
        )


def _check_clients_can_answer(study: Study, clock: Timing, dataset: Dataset) -> None:
    """Say what the first run shows: clients without a chance, chunks that do not fit."""
    if study.class_size is not None and study.class_size > np.bincount(dataset.groups).min():
        return  # refused below
    data = training_set(dataset, study.class_size, seed=study.seed, run=0)
    loss, kept = study_loss(study), 0
    for curve in study.curves:
        sites = dataset.sites if curve.is_natural else ()
        shared = share(curve, data.groups, study.clients, seed=study.seed, run=0, sites=data.sites)
        held = shared.placement.held_counts()
        model = models.load(curve.model, dataset.x_train.shape[1:], loss)
        n_params = len(model.initial(rng=stream(study.seed, "model", 0)))
        per_example = clock.per_example(n_params)
        try:
            law = clock.law(study.clients, per_example, seed=study.seed, run=0, sites=sites)
        except ArgumentError as error:
            raise StudyError(f"[clock]: {error}") from None
        names = sites or tuple(f"client {i + 1}" for i in range(study.clients))
        if said := timelines.never_on_time(curve, law, held, per_example, names):
            _warn_once(f"{curve.policy}, {curve.estimator}, work {curve.work}: {said}")
        if said := timelines.too_short(curve, law, held, per_example, clock.seconds):
            _warn_once(f"{curve.policy}, {curve.estimator}, work {curve.work}: {said}")
        absences = None
        if curve.corrected and curve.away:
            classes = main_class(shared, data.groups)
            absences = clock.absences(study.clients, classes, seed=study.seed, run=0, sites=sites)
        vectors = timelines.kept_vectors(curve, law, shared.placement, absences, per_example)
        needed = vectors * n_params * np.dtype(np.float32).itemsize
        kept += needed * study.block_size
        if curve.corrected and curve.model not in models.LINEAR:
            of_clients = law, shared.placement, absences, per_example
            most = int(timelines.division_of(curve, *of_clients).n_chunks.max())
            _warn_once(
                f"correct with model {curve.model}: chunks, anchors and gradients of shared "
                f"examples take {needed / 1e6:.0f} MB a run; a site would keep up to {most} of the "
                f"models that it received, {4 * n_params / 1e6:.1f} MB each"
            )
    if kept > _machine_bytes():
        raise StudyError(
            f"work must leave room in memory: the chunks of all lines would keep {kept / 1e9:.1f} "
            f"GB of this machine's {_machine_bytes() / 1e9:.1f} GB; take longer deadlines, fewer "
            "clients, or such lines in studies of their own"
        )


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
