"""The wheel, installed as a user would: in a new environment, without the constraints file."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import UV, metadata, need_uv, run


def install_newest(wheel: Path, folder: Path) -> Path:
    """With pip, as the README says: what the bounds allow and the index has."""
    run([sys.executable, "-m", "venv", "new"], folder)
    pip = [folder / "new" / "bin" / "python", "-m", "pip"]
    run([*pip, "install", "--quiet", "--no-compile", wheel], folder)
    return folder / "new" / "bin"


def install_lowest(wheel: Path, folder: Path, *extras: str) -> Path:
    """The lowest versions that the wheel's own metadata allow; what those need is the newest."""
    if sys.version_info >= (3, 13):
        pytest.skip("the lowest versions are older than this Python")
    need_uv(folder)
    declared = [Requirement(r) for r in metadata(wheel).get_all("Requires-Dist", [])]
    wanted = [
        f"{r.name}{r.specifier}"
        for r in declared
        if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in extras)
    ]
    (folder / "lowest.in").write_text("\n".join(wanted))
    run([UV, "venv", "--quiet", "--seed", "--python", sys.executable, "low"], folder)
    install = [UV, "pip", "install", "--quiet", "--python", folder / "low" / "bin" / "python"]
    run([*install, "--resolution", "lowest-direct", "--requirements", "lowest.in"], folder)
    run([*install, "--no-deps", wheel], folder)
    return folder / "low" / "bin"


@pytest.fixture(scope="module")
def lowest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lowest versions of the package and of its extra for Flower, installed once."""
    return install_lowest(wheel, tmp_path_factory.mktemp("lowest"), "flower")


def test_the_newest_versions_work(wheel: Path, tmp_path: Path) -> None:
    check_commands(install_newest(wheel, tmp_path), wheel, tmp_path)


def test_the_lowest_versions_work(lowest: Path, wheel: Path, tmp_path: Path) -> None:
    check_commands(lowest, wheel, tmp_path)


def check_commands(bin_folder: Path, wheel: Path, tmp_path: Path) -> None:
    where = run(
        [bin_folder / "python", "-c", "import fedcommons as f; print(f.__file__)"], tmp_path
    )
    assert Path(where.strip()).is_relative_to(bin_folder.parent)

    def fedcommons(*arguments: str) -> str:
        return run([bin_folder / "fedcommons", *arguments], tmp_path)

    assert fedcommons("--version").split() == ["fedcommons", metadata(wheel)["Version"]]
    commands = {"reproduce", "simulate", "report", "plan", "federate"}
    assert commands <= set(fedcommons("--help").split())
    study = ("--figure", "figure3", "--runs", "2", "--rounds", "5", "--out", "results")
    assert json.loads(fedcommons("reproduce", *study, "--json"))["runs"] == 2
    page = tmp_path / "results" / "report.html"
    page.unlink()
    fedcommons("report", "results")
    assert page.stat().st_size > 0
    assert "variance" in fedcommons("plan", "--clients", "10", "--p", "0.7", "--share", "0.5")


def test_a_federation_runs_with_the_lowest_versions_of_its_extra(
    lowest: Path, tmp_path: Path
) -> None:
    run([lowest / "fedcommons", "federate", "new", "clinics"], tmp_path)
    rounds = ("--run-config", "num-rounds=2", "--json")
    printed = run([lowest / "fedcommons", "federate", "run", "clinics", *rounds], tmp_path)
    assert json.loads(printed)["sites"] == 5


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"fedcommons"}
    for needed in (
        "py.typed",
        "datasets/data/mnist.npz",
        "simulate/paper.toml",
        "simulate/paper_clock.toml",
    ):
        assert f"fedcommons/{needed}" in names
