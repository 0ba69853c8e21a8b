"""A part of some digits for a trial: `digits.py SITE SITES...` writes data.npz and held-out.npz."""

import sys

import numpy as np

from fedcommons import datasets

EACH, EACH_HELD_OUT = 30, 100  # images of each digit, at all sites together

site, *sites = sys.argv[1:]
mnist, rng = datasets.mnist(), np.random.default_rng(0)
for name, x, y, each in (
    ("data.npz", mnist.x_train, mnist.y_train, EACH),
    ("held-out.npz", mnist.x_test, mnist.y_test, EACH_HELD_OUT),
):
    rows = [rng.permutation(np.flatnonzero(y == digit))[:each] for digit in range(10)]
    mine = np.array_split(np.concatenate(rows), len(sites))[sites.index(site)]
    np.savez(name, x=x[mine], y=y[mine], shareable=np.arange(len(mine)) % 5 == 0)
