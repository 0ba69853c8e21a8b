"""The task of CodedPaddedFL: least squares on 2,000 random features of images.

    python experiments/random_features.py mnist features-mnist.npz
    python experiments/random_features.py fashion-mnist.npz features-fashion.npz

The features approximate a radial basis kernel exp(-|x - y|^2 / (2 WIDTH^2)) on pixels in [0, 1]
(Rahimi and Recht, NIPS 2007): sqrt(2/2000) cos(w x + b), w normal, b uniform. Studies name
the loss as "experiments.random_features:LeastSquares".
"""

from __future__ import annotations

import argparse

import numpy as np
import numpy.typing as npt

import fedcommons as fc

FEATURES, WIDTH = 2000, 5.0
AT_ONCE = 5000  # images
TRAINING = 30_000  # of each file: more are not drawn


class LeastSquares(fc.tasks.CrossEntropy):
    """Half of the squared distance of the scores from the label, written as zeros and a one."""

    name = "least-squares"

    def residuals(self, scores, y, weight):
        found = scores - np.eye(self.n_outputs, dtype=np.float32)[y]
        found *= weight[..., None]
        return found

    def values(self, scores, y):
        return 0.5 * ((scores - np.eye(self.n_outputs)[y]) ** 2).sum(axis=-1)


def features(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """(M, FEATURES) of images (M, ...): the same random functions for all."""
    pixels = images.reshape(len(images), -1)
    rng = np.random.default_rng(0)
    w = rng.normal(scale=1 / WIDTH, size=(pixels.shape[1], FEATURES)).astype(np.float32)
    b = rng.uniform(0, 2 * np.pi, FEATURES).astype(np.float32)
    found = np.empty((len(pixels), FEATURES), np.float32)
    for start in range(0, len(pixels), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        inputs = pixels[part].astype(np.float32) / 255
        found[part] = np.sqrt(2 / FEATURES) * np.cos(inputs @ w + b)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("out")
    options = parser.parse_args()
    data = fc.datasets.opened(options.dataset)
    drawn = np.random.default_rng(1).permutation(len(data.y_train))[:TRAINING]
    np.savez(
        options.out,
        x_train=features(data.x_train[drawn]),
        y_train=data.y_train[drawn],
        x_test=features(data.x_test),
        y_test=data.y_test,
    )


if __name__ == "__main__":
    main()
