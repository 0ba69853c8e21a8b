"""Ways to train: the paper's, and how others answer the same problem. One file each."""

from fedcommons.registry import Registry
from fedcommons.simulate.algorithms.algorithm import Algorithm, Local, Setup
from fedcommons.simulate.algorithms.coded_fedavg import coded_fedavg
from fedcommons.simulate.algorithms.coded_gd import coded_gd
from fedcommons.simulate.algorithms.cyclic_repetition import cyclic_repetition
from fedcommons.simulate.algorithms.fedavg import fedavg
from fedcommons.simulate.algorithms.fedprox import fedprox
from fedcommons.simulate.algorithms.fractional_repetition import fractional_repetition
from fedcommons.simulate.algorithms.hybrid import hybrid
from fedcommons.simulate.algorithms.optimal_decoding import optimal_decoding
from fedcommons.simulate.algorithms.presence_split import presence_split
from fedcommons.simulate.algorithms.scaffold import scaffold
from fedcommons.simulate.algorithms.shared_subset import shared_subset
from fedcommons.simulate.algorithms.stochastic_gradient_coding import stochastic_gradient_coding

ALGORITHMS = Registry(
    "algorithm",
    Algorithm,
    (
        coded_gd,
        coded_fedavg,
        fedavg,
        fedprox,
        scaffold,
        shared_subset,
        hybrid,
        fractional_repetition,
        cyclic_repetition,
        stochastic_gradient_coding,
        presence_split,
        optimal_decoding,
    ),
)

__all__ = ["ALGORITHMS", "Algorithm", "Local", "Setup"]
