"""Where there is no `fcntl`, as on Windows: the concepts work, the rest ends in one sentence."""

import subprocess
import sys

import pytest

WINDOWS = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name == "fcntl":
            raise ModuleNotFoundError("No module named 'fcntl'", name="fcntl")
sys.modules.pop("fcntl", None)
sys.meta_path.insert(0, Missing())
"""
SENTENCE = (
    "this needs file locks, which Windows does not have: use Linux or macOS, "
    "or the Windows Subsystem for Linux"
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WINDOWS + code], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("arguments", [["--version"], ["reproduce"], ["federate", "status", "x"]])
def test_the_command_line_says_it_in_one_sentence(arguments):
    code = f"sys.argv = ['fedcommons', *{arguments}]; from fedcommons.cli.app import main; main()"
    run = python(code)
    assert (run.returncode, run.stdout, run.stderr) == (10, "", f"fedcommons: {SENTENCE}\n")


@pytest.mark.parametrize(
    "use", ["fc.federate.Store", "fc.simulate.Folder", "__import__('fedcommons.figures.report')"]
)
def test_stores_and_results_folders_say_it_too(use):
    code = f"""
import fedcommons as fc
try:
    {use}
except fc.UnsupportedSystemError as error:
    print(error)
"""
    assert python(code).stdout == f"{SENTENCE}\n"


def test_the_concepts_work():
    code = """
import numpy as np, fedcommons as fc
rng = np.random.default_rng(0)
labels = np.repeat(np.arange(2), 5)
owner = fc.partition.single_class(labels, 2, rng=rng)
placement = fc.sharing.randomised(owner, owner == 0, copies=1, n_clients=2, rng=rng)
print(placement, fc.theory.lambdas, fc.datasets, fc.plan)
"""
    run = python(code)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("Placement(10 examples at 2 clients, 5 copies)")
