import hashlib

import numpy as np
import pytest

from fedcommons import datasets

# sha256 of each array's bytes; they are those of the four IDX files' contents behind the headers.
# Regenerate: python -c "import hashlib, numpy as np; f = np.load('mnist.npz');
#   [print(k, hashlib.sha256(f[k].tobytes()).hexdigest()) for k in f]"
DIGESTS = {
    "x_train": "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
    "y_train": "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
    "x_test": "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
    "y_test": "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
}


@pytest.fixture(scope="module")
def mnist():
    return datasets.mnist()


def test_mnist_is_complete_and_unchanged(mnist):
    for name, digest in DIGESTS.items():
        array = getattr(mnist, name).astype(np.uint8)
        assert hashlib.sha256(array.tobytes()).hexdigest() == digest
    assert mnist.x_train.shape == (60_000, 28, 28)
    assert mnist.x_test.shape == (10_000, 28, 28)
    assert mnist.n_classes == 10


def test_inputs_are_flat_and_scaled(mnist):
    examples = np.array([5, 0, 59_999])
    inputs = mnist.inputs("train", examples)
    assert inputs.shape == (3, 784)
    assert inputs.dtype == np.float32
    raw = mnist.x_train[examples].reshape(3, 784)
    assert np.array_equal(inputs, raw.astype(np.float32) / np.float32(255))
    assert mnist.inputs("test", dtype=np.float64).max() == 1.0
