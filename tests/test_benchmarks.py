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


def test_ticks_benchmark_runs(tmp_path):
    out = tmp_path / "ticks.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "ticks.py", "--quick", "--json", out],
        check=True,
        capture_output=True,
    )
    assert {len(one) for one in json.loads(out.read_text()).values()} == {3}


def test_clients_benchmark_runs(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "clients.py", "--quick", "--json", out],
        check=True,
        capture_output=True,
    )
    assert all(one["accuracy"] > 0.5 for one in json.loads(out.read_text()))


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


def test_peers_stand_beside_our_own_time(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduction

    (tmp_path / "slow.py").write_text(
        "import json, sys\n"
        "open(sys.argv[-1], 'w').write(json.dumps({'name': 'slow', 'seconds_per_round': 3}))\n"
    )
    monkeypatch.setattr(reproduction, "PEERS", tmp_path)
    monkeypatch.setattr(reproduction, "FRAMEWORKS", (("json", "slow.py"),))
    monkeypatch.setattr(reproduction, "one_core_run", lambda curves: 2.0 + len(curves))
    found = reproduction.frameworks()
    n = len(reproduction.figure_curves())
    assert found["slow"] == {
        "s per run of 50 rounds": 150,
        "x ours alone": 50,
        "x ours, one of many": pytest.approx(150 / (2 / n + 1)),
    }
    assert found["fedcommons, alone"]["x ours alone"] == 1


def test_memory_is_measured_for_every_size(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduction

    assert reproduction.memory_of(runs=1, rates=2, clients=20, class_size=15) > 50
    monkeypatch.setattr(reproduction, "memory_of", lambda **sizes: sum(sizes.values()))
    names = list(reproduction.peak_memory())
    for size in ("1000 runs", "120 curves", "N = 80", "M = 1200"):
        assert size in names


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
            sys.executable, BENCHMARKS / "models.py", "--runs", "2", "--rounds", "2", "--json", out,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    result = json.loads(out.read_text())
    assert len(result) == 7
    gaps = [row.get("largest difference in accuracy", 0) for row in result.values()]
    assert max(gaps) < 0.003  # 2 of 1,000


def test_size_benchmark_runs(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "size.py", "--quick", "--json", out],
        check=True,
        capture_output=True,
    )
    ((_, found),) = json.loads(out.read_text()).items()
    assert found["checkpoint, MB"] == pytest.approx(0.4, rel=0.1)
    assert found["training's folder, MB"] > 4 * found["checkpoint, MB"]


def test_robust_benchmark_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import robust

    monkeypatch.setattr(robust, "ROUNDS", 15)
    free, _ = robust.trained("coded sum", "sign flip x10", 1, "IID", 0)
    bounded, n_clipped = robust.trained("bounded", "sign flip x10", 1, "IID", 0)
    assert n_clipped > 0
    assert bounded > free + 0.1
    assert robust.trained("bounded", "nobody", 0, "IID", 0)[1] == 0


def test_adoption_benchmark_runs_and_nothing_is_lost_while_nothing_is_shared(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [
            sys.executable, BENCHMARKS / "adoption.py", "--apps", "tabular", "--cases", "0", "2",
            "--seeds", "2", "--rounds", "1", "--json", out,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    all_answer, half_missing = json.loads(out.read_text())["tabular"].values()
    assert all_answer["as good"]
    of_seeds = all_answer["of each seed"]
    assert of_seeds["after"] == pytest.approx(of_seeds["before"], abs=0.02)  # 3 of 17,000 examples
    assert half_missing["difference"] != 0


def test_chaos_benchmark_runs_and_reaches_the_model_without_a_kill(tmp_path):
    out = tmp_path / "results.json"
    subprocess.run(
        [
            sys.executable, BENCHMARKS / "chaos.py", "--kills", "2", "--sites", "3",
            "--rounds", "2", "--what", "serverapp", "superlink", "--json", out,
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    found = json.loads(out.read_text())
    assert found["same"]
    assert {kill["what"] for kill in found["kills"]} == {"serverapp", "superlink"}
    assert found["held"]["coverage"] == pytest.approx(found["held"]["examples"]) == 3 * 60 - 2
    assert found["held"]["receipts"] == 6
    assert found["marks at recipients"] == 3 * 30 - 1


def test_the_benchmark_of_a_slow_site_finds_where_a_site_begins_to_train(monkeypatch, tmp_path):
    """The federation itself is tests/federate/deploy's; this is what may change under it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import late

    late.write_slow_app(tmp_path / "digits")
    text = (tmp_path / "digits" / "digits" / "client_app.py").read_text()
    compile(text, "client_app.py", "exec")
    assert text.count(f'time.sleep(float(os.environ.get("{late.SLEEP}", 0)))') == 1


def test_deadlines_benchmark_runs(tmp_path):
    out = tmp_path / "deadlines.json"
    subprocess.run(
        [sys.executable, BENCHMARKS / "deadlines.py", "--quick", "--runs", "1", "--json", out],
        check=True,
        capture_output=True,
    )
    (found,) = json.loads(out.read_text())
    assert {"assumed", "measured", "best seconds"} <= set(found)
