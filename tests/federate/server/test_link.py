"""The server's room knows its link and nothing of Flower: another transport takes one file."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.federate.tiny import train

IN_MEMORY = """
import sys
sys.modules["flwr"] = None  # importing it fails
from pathlib import Path
import numpy as np
import pytest
from fedcommons.federate.server.settings import Settings
from fedcommons.federate.site.own_data import SiteData
from tests.federate.server.in_memory import run
folder = Path(sys.argv[1])
data = {}
for path in sorted(folder.glob("*.npz")):
    with np.load(path) as file:
        data[path.stem] = SiteData.from_arrays(file["x"], file["y"], file["shareable"])
settings = Settings.of(learning_rate=0.5, estimator="memory", warm=True, straggler_prob=0.25)
np.save(folder / "model.npy", run(folder, data, copies=2, seed=5, settings=settings))
"""


@pytest.mark.usefixtures("impatient")
def test_another_transport_takes_one_file_and_no_flower(tiny, tmp_path):
    """Exchange, commit and two rounds reach the model that they reach over Flower."""
    folder = tmp_path / "in-memory"
    folder.mkdir()
    for name, data in tiny.data.items():
        x = data.x.take(np.arange(data.n_examples))
        np.savez(folder / f"{name}.npz", x=x, y=data.y, shareable=data.shareable)
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{root}"}
    subprocess.run([sys.executable, "-c", IN_MEMORY, folder], check=True, env=environment)
    grid = tiny.grid()
    with tiny.shared(grid) as federation:
        settings = {"estimator": "memory", "warm": True, "straggler_prob": 0.25}
        expected, _ = train(federation, grid, 2, **settings)
    assert np.load(folder / "model.npy").tobytes() == expected.tobytes()
    assert expected.any()
