"""The benchmarks run: a small one of each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def test_placement_benchmark_runs(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "placement.py", "--examples", "4000", "--json", out],
        check=True,
        capture_output=True,
    )
    assert len(json.loads(out.read_text())) == 5


def test_reproduction_benchmark_runs(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [
            sys.executable, BENCHMARKS / "reproduction.py", "--quick", "--runs", "1", "--json", out,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    result = json.loads(out.read_text())["whole reproduction"]
    assert 0 < result["fraction"] < 1


def test_federation_benchmark_runs(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "federation.py", "--quick", "--json", out],
        check=True,
        capture_output=True,
    )
    result = json.loads(out.read_text())
    assert result["exchange"]["deliveries"] == 90
    assert result["beside FedAvg"]["examples held / owned (1 + dc)"] == 2.5


def test_models_benchmark_runs_and_its_loop_does_the_same_work(tmp_path):
    pytest.importorskip("torch")
    out = tmp_path / "results.json"
    subprocess.run(
        [
            sys.executable, BENCHMARKS / "models.py", "--runs", "2", "--rounds", "3", "--json", out,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    result = json.loads(out.read_text())
    assert len(result) == 7
    gaps = [row.get("largest difference in accuracy", 0) for row in result.values()]
    assert max(gaps) < 0.003  # 2 of 1,000
