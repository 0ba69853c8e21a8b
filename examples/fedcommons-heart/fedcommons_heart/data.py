"""A hospital's records: parts of the data that come with fedcommons, or its own files."""

from functools import cache

import numpy as np
from flwr.app import Context

from fedcommons import datasets
from fedcommons.flower import SiteData, data_from_node_config, held_out_from_node_config


@cache
def heart() -> datasets.Dataset:
    """486 patients of four hospitals to train on, 254 to test on (UCI Heart Disease, CC BY 4.0)."""
    return datasets.heart()


def is_simulated(context: Context) -> bool:
    """Flower's simulation numbers its sites; a real one names a file of its own."""
    return "partition-id" in context.node_config and "data" not in context.node_config


def rows(hospital: np.ndarray, context: Context) -> np.ndarray:
    """The rows of one site: a hospital's if there are four, else a part of one, or several."""
    k = int(context.node_config["partition-id"])
    n = int(context.node_config["num-partitions"])
    if n <= 4:
        return np.flatnonzero(hospital % n == k)
    sites_of_hospital = range(k % 4, n, 4)
    return np.flatnonzero(hospital == k % 4)[k // 4 :: len(sites_of_hospital)]


def load_site(context: Context) -> SiteData:
    """What the site trains on, and which of it may be shared: nothing else ever leaves it."""
    if not is_simulated(context):
        return data_from_node_config(context)
    mine = rows(heart().site_train, context)
    part = float(context.run_config["share-part"])
    consented = np.random.default_rng(int(mine[0])).random(len(mine)) < part
    return SiteData.from_arrays(heart().x_train[mine], heart().y_train[mine], consented)


def load_held_out(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """What the site measures the model on: nothing trains on it, and it is never shared."""
    if not is_simulated(context):
        return held_out_from_node_config(context)
    mine = rows(heart().site_test, context)
    return heart().x_test[mine], heart().y_test[mine]
