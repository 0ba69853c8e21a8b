"""`fedcommons federate` as its users type it."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedcommons.cli.federate import app as cli
from fedcommons.cli.federate import parse_config
from fedcommons.errors import ArgumentError
from fedcommons.federate.deploy import certificates
from tests.cli.command import Ended, run, started


def fedcommons(*arguments: object, code: int = 0) -> str:
    """What a command prints."""
    return said_by(run(*arguments), code)


def said_by(result: Ended, code: int = 0) -> str:
    assert result.returncode == code, result.stderr[-3000:]
    assert "Traceback" not in result.stderr
    return result.stdout + result.stderr


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """An app that was written and run: its folder, its state-dir, what it printed."""
    folder = tmp_path_factory.mktemp("app") / "clinics"
    fedcommons("federate", "new", folder)
    config = "num-rounds=3 rehearse-stragglers=0.3"
    said = said_by(started("federate", "run", folder, "--run-config", config))
    return folder, folder.with_name("clinics-state") / "simulation", said


def results(state: Path) -> list[Path]:
    return sorted(path.parent for path in state.glob("*/run.json"))


def test_a_new_app_runs_unchanged_and_learns(app):
    _, state, said = app
    found = [float(value) for value in re.findall(r"accuracy (0\.\d+)", said)]
    assert len(found) == 3
    assert found[-1] > 0.5
    (folder,) = results(state)
    assert str(folder) in said
    with np.load(folder / "model.npz") as model:
        assert model["beta"].shape == (785, 10)


def test_local_steps_and_batches_make_a_difference(app, tmp_path):
    found = set()
    for config in ("local-steps=1", "local-steps=3", "local-steps=3 batch-size=8"):
        state = tmp_path / str(len(found))
        fedcommons(
            "federate", "run", app[0], "--run-config", f'num-rounds=2 state-dir="{state}" {config}'
        )
        (folder,) = results(state / "simulation")
        with np.load(folder / "model.npz") as model:
            found.add(model["beta"].tobytes())
    assert len(found) == 3


def test_the_report_of_a_training_is_one_page(app):
    (folder,) = results(app[1])
    assert str(folder / "report.html") in fedcommons("report", folder)
    page = (folder / "report.html").read_text()
    for word in ("clinics", "site-4", "accuracy after each round", "300 examples"):
        assert word in page
    assert "http" not in re.sub(r'http-equiv="[^"]*"', "", page)


def test_the_report_of_an_interrupted_run_is_of_its_checkpoint(app, tmp_path):
    (folder,) = results(app[1])
    for name in ("checkpoint.npz", "history.jsonl"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    fedcommons("report", tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "5 sites, 3 rounds on 300 examples" in " ".join(page.split())
    run = json.loads((folder / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**run, "rounds": 2}))  # of the run before
    fedcommons("report", tmp_path)


def test_a_run_in_a_pipe_has_no_colours_and_speaks_json(app):
    config = "num-rounds=1 rehearse-stragglers=0.3"
    said = said_by(started("federate", "run", app[0], "--run-config", config, "--json"))
    found, end = json.JSONDecoder().raw_decode(said)
    assert (found["sites"], found["state_dir"]) == (5, str(app[1]))
    assert "nothing was trained: this training is at round 3" in said[end:]
    assert "\x1b[" not in said


def test_a_damaged_results_folder_is_a_message(app, tmp_path):
    (folder,) = results(app[1])
    for name in ("run.json", "rounds.parquet", "answers.parquet"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "rounds.parquet").write_bytes(b"PAR1 and no more")
    assert "cannot be read" in fedcommons("report", tmp_path, code=6)


def test_status_and_ledger_tell_what_became_of_examples(app):
    store = app[1] / "sites" / "site-0"
    status = json.loads(fedcommons("federate", "status", store, "--json"))
    assert status["federation"] == "clinics"
    assert status["own_examples"] == 60
    assert status["own_shareable"] == 12
    ledger = json.loads(fedcommons("federate", "ledger", store, "--json"))
    by_event = {
        event: sum(entry["examples"] for entry in ledger if entry["event"] == event)
        for event in ("sent", "received", "receipt")
    }
    assert by_event["sent"] == by_event["receipt"] == 3 * 12
    assert by_event["received"] == sum(status["held_from_others"].values())
    assert "held from site-1" in fedcommons("federate", "status", store)
    assert "receipt" in fedcommons("federate", "ledger", store)


def test_a_withdrawal_reaches_the_holders(app):
    folder, state, _ = app
    said = fedcommons("federate", "withdraw", state / "sites" / "site-2", "--rows", "0,1")
    assert "2 examples are withdrawn" in said
    fedcommons("federate", "run", folder, "--run-config", "num-rounds=6 rehearse-stragglers=0.3")
    ledgers = [
        json.loads(fedcommons("federate", "ledger", state / "sites" / f"site-{k}", "--json"))
        for k in range(5)
    ]
    deleted = [
        entry for ledger in ledgers for entry in ledger if entry["event"] == "deleted"
    ]  # row 0 is shareable, row 1 is not
    assert sum(entry["examples"] for entry in deleted) == 3
    assert {entry["peer"] for entry in deleted} == {"site-2"}


def test_identity_is_made_once(tmp_path):
    first = fedcommons("federate", "identity", tmp_path / "store").strip()
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert fedcommons("federate", "identity", tmp_path / "store").strip() == first


@pytest.mark.parametrize("command", cli.registered_commands, ids=lambda c: c.callback.__name__)
def test_the_help_of_a_command_has_an_example_and_fits_on_80_columns(command):
    """Lines after the first paragraph are not wrapped again; two columns are margins."""
    lines = inspect.getdoc(command.callback).splitlines()
    assert any(line.startswith("Example: fedcommons federate ") for line in lines)
    assert all(len(line) <= 78 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("status", "{tmp}/none"), 7, "is not a site's store"),
        (("ledger", "{tmp}/none"), 7, "is not a site's store"),
        (("withdraw", "{tmp}/none", "--rows", "1"), 7, "is not a site's store"),
        (("withdraw", "{tmp}/none"), 2, "either --rows or --all"),
        (("withdraw", "{tmp}/none", "--rows", "1", "--all"), 2, "either --rows or --all"),
        (("withdraw", "{tmp}/none", "--rows", "one"), 2, "must be integers"),
        (("withdraw", "{tmp}/none", "--rows", ","), 2, "at least one row"),
        (("withdraw", "{tmp}/none", "--rows", "9" * 30), 2, "must be integers"),
        (("tls", "{tmp}/full/file"), 8, "cannot be written"),
        (("tls", "/proc/none"), 8, "cannot be written"),
        (("tls", "{tmp}/tls", "--host", ""), 2, "host must be an address or a name in ASCII"),
        (("tls", "{tmp}/tls", "--host", "münchen.de"), 2, "host must be an address or a name"),
        (("node-key", "{tmp}/node.pub"), 2, "must not end in .pub"),
        (("node-key", "{tmp}/full/file/x"), 8, "cannot be written"),
        (("tls", "{tmp}/none", "--renew"), 8, "server.pem cannot be read: No such file"),
        (("tls", "{tmp}/none", "--check"), 8, "ca.pem cannot be read: No such file"),
        (("tls", "{tmp}/none", "--renew", "--host", "a"), 2, "only one of --host, --renew and"),
        (("tls", "{tmp}/none", "--within", "9"), 2, "within only has a meaning with --renew"),
        (("tls", "{tmp}/none", "--renew", "--within", "0"), 2, "within must be an integer in"),
        (("proxy", "{tmp}/p", "--tls", "{tmp}"), 2, "/ca.pem is missing"),
        (("proxy", "{tmp}/p", "--tls", "{tmp}", "--listen", "127.0.0.1:99999"), 2, "up to 65535"),
        (("proxy", "{tmp}/p", "--tls", "{tmp}", "--listen", "a;b:1"), 2, "listen must be an"),
        (("proxy", "{tmp}/p", "--tls", "{tmp}", "--superlink", "localhost"), 2, "superlink must"),
        (("proxy", "{tmp}/p", "--tls", "{tmp}", "--megabytes", "0"), 2, "megabytes must be an"),
        (("trust", "{tmp}/none", "{tmp}/p"), 8, "none cannot be read: No such file"),
        (("trust", "{tmp}/full/file", "{tmp}/p"), 8, "is no statement of a new key"),
        (("identity", "{tmp}/none", "--rotate", "{tmp}/s"), 7, "is not a site's store"),
        (("check", "{tmp}/none.npz"), 3, "none.npz cannot be read: No such file"),
        (("check", "{tmp}/full/file"), 3, "data must be .npz, .parquet or .csv"),
        (("check", "{tmp}/nan.npz"), 3, "x must be finite, got nan in example 2"),
        (("check", "{tmp}/digits.npz", "--classes", "2"), 3, "labels from 0 to 1, got 2 in"),
        (("check", "{tmp}/digits.npz", "--classes", "0"), 2, "classes must be an integer >= 1"),
        (("run", "{tmp}"), 8, "pyproject.toml cannot be read"),
        (("run", "{tmp}/half"), 8, "must describe a Flower app: 'clientapp' is missing"),
        (("run", "{tmp}", "--sites", "1"), 2, "at least 2"),
        (("run", "{tmp}", "--run-config", "rounds"), 2, "key=value"),
        (("new", "{tmp}/full"), 8, "must be new or an empty folder"),
        (("new", "{tmp}/1x"), 8, "must begin with a letter"),
        (("new", "{tmp}/kliniken-köln"), 8, "be in ASCII"),
        (("new", "{tmp}/class"), 8, "must not be a keyword or a module of Python"),
        (("new", "{tmp}/json"), 8, "must not be a keyword or a module of Python"),
    ],
)
def test_a_mistake_is_a_message_and_an_exit_code(arguments, code, said, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "pyproject.toml").write_text(
        '[tool.flwr.app.components]\nserverapp = "a:app"\n'
    )
    for name, x in (("digits", np.ones((3, 2))), ("nan", np.array([[1], [2], [np.nan]]))):
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.arange(3), shareable=[True, False, True])
    filled = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    assert said in fedcommons("federate", *filled, code=code)


def test_a_data_file_can_be_checked_before_anything_runs(tmp_path):
    x, y = np.ones((30, 4, 2), np.float32), np.arange(30)
    np.savez(tmp_path / "a.npz", x=x, y=y, shareable=y % 3 == 0)
    found = json.loads(fedcommons("federate", "check", tmp_path / "a.npz", "--json"))
    labels = ", ".join(map(str, range(20))) + ", ..."
    assert found == {
        "examples": 30, "shareable": 10, "an_example": "float32 4x2", "labels": labels
    }  # fmt: skip
    assert "float32 4x2" in fedcommons("federate", "check", tmp_path / "a.npz", "--classes", 30)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz"]


def test_a_table_can_be_checked_before_anything_runs(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("age;crp;outcome;days\n50;0,5;yes;1\n61;0,01;no;2\n")
    check = ["federate", "check", path, "--separator", ";", "--decimal", ",", "--json"]
    found = json.loads(fedcommons(*check, "--label-column", "outcome", "--classes", "no,yes"))
    assert found == {
        "examples": 2, "shareable": 0, "an_example": "float64 3", "labels": "0, 1",
        "features": "age, crp, days",
        "scales": "very different: age is about 55.8 in size, crp about 0.354",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("file", "before", "after", "said"),
    [
        ("data.py", "x_train[mine]", "x_trian[mine]",
         "AttributeError: 'Dataset' object has no attribute 'x_trian'\n  File "),
        ("data.py", "mnist.y_train[mine], shareable", "mnist.y_train, shareable",
         "DataError: data: y must be numbers (examples, ...), a label for each of the"),
        ("data.py", "N_CLASSES = 10", "N_CLASSES = 9",
         "DataError: data: y must be labels from 0 to 8, got 9 in example"),
        ("task.py", ".astype(np.float32))})", ")})",
         "the training function must return the arrays that it was given, got "
         "beta (float64, shape (785, 10)) instead of beta (float32, shape (785, 10))"),
        ("task.py", '{"arrays": ', '{"model": ', "must return 'arrays' or 'gradient', got"),
    ],
    ids=["typo", "lengths", "labels", "type", "name"],
)  # fmt: skip
def test_a_mistake_in_the_app_is_said_where_it_is_made(
    request, tmp_path, caplog, file, before, after, said
):
    name = f"mistake_{request.node.callspec.id}"  # a module of this process that no other test has
    fedcommons("federate", "new", tmp_path / name)
    path = tmp_path / name / name / file
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    found = fedcommons("federate", "run", tmp_path / name, code=8 if "9" not in after else 0)
    assert said in "\n".join([*caplog.messages, found])


def test_a_store_that_was_never_in_a_federation_has_nothing_to_withdraw(tmp_path):
    fedcommons("federate", "identity", tmp_path / "store")
    said = fedcommons("federate", "withdraw", tmp_path / "store", "--all", code=7)
    assert "was never in a federation" in said


def test_the_command_that_is_suggested_can_be_typed(tmp_path):
    said = fedcommons("federate", "new", tmp_path / "my app")
    assert f"fedcommons federate run '{tmp_path / 'my app'}'" in said
    assert 'name = "my-app"' in (tmp_path / "my app" / "pyproject.toml").read_text()


def test_a_run_config_is_pairs_with_spaces_between():
    assert parse_config("n=3  leave=\"a, b\" x='c d' warm=true") == {
        "n": 3,
        "leave": "a, b",
        "x": "c d",
        "warm": True,
    }
    for text in ("n", "=3", 'x="a', "n=3=4 5"):
        with pytest.raises(ArgumentError, match="key=value"):
            parse_config(text)


def test_an_unknown_key_of_the_run_config_is_named(app):
    said = fedcommons("federate", "run", app[0], "--run-config", "rounds=3", code=8)
    assert "'rounds'" in said
    assert "num-rounds" in said


def test_a_wrong_setting_is_named_before_anything_is_made(app, tmp_path):
    config = f'estimator="mean" state-dir="{tmp_path / "state"}"'
    said = fedcommons("federate", "run", app[0], "--run-config", config, code=2)
    assert "estimator must be one of" in said
    assert not (tmp_path / "state").exists()


def test_rows_that_do_not_exist_cannot_be_withdrawn(app):
    store = app[1] / "sites" / "site-1"
    said = fedcommons("federate", "withdraw", store, "--rows", "60", code=7)
    assert "0 to 59" in said


def test_a_torch_app_runs(tmp_path, caplog):
    fedcommons("federate", "new", tmp_path / "nets", "--torch")
    fedcommons("federate", "run", tmp_path / "nets", "--run-config", "num-rounds=3 local-steps=2")
    said = dict.fromkeys(re.findall(r"round (\d/3: sites_accuracy 0\.\d+)", caplog.text))
    found = [float(value.split()[-1]) for value in said]
    assert len(found) == 3
    assert found[-1] > 0.3


def test_the_exchange_does_not_import_torch(tmp_path):
    fedcommons("federate", "new", tmp_path / "nets", "--torch")
    code = f"""
import sys
sys.path.insert(0, {str(tmp_path / "nets")!r})
from nets.client_app import app
from flwr.app import Context, RecordDict
from fedcommons.federate.server import coordinator
from fedcommons.federate.transport import embedded_grid, flower_internals
from fedcommons.federate.transport.flower_link import FlowerLink
from pathlib import Path
nodes = [
    {{"store": f"{tmp_path}/store{{k}}", "site": f"s{{k}}", "peers": "first-use",
     "partition-id": k, "num-partitions": 3}}
    for k in range(3)
]
grid = embedded_grid.EmbeddedGrid(app, nodes, {{}})
with flower_internals.as_task(grid.run_id, 1):
    us = coordinator.share(FlowerLink(grid), federation="nets", state_dir=Path("{tmp_path}/state"),
        run_id=grid.run_id, copies=2, n_sites=3)
assert len(us.commit.pairs) == 6
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# A site's operator decides


def test_policy_approval_and_recovery_are_seen_in_the_status(app, tmp_path):
    store = tmp_path / "store"
    fedcommons("federate", "identity", store)
    status = json.loads(fedcommons("federate", "status", store, "--json"))
    assert status["policy"]["min-examples"] == 32
    (store / "policy.toml").write_text("min-examples = 5\n")
    assert fedcommons("federate", "approve", store) == "the next exchange is approved\n"
    fedcommons("federate", "approve", store, "--exchange", 7)
    status = json.loads(fedcommons("federate", "status", store, "--json"))
    assert (status["policy"]["min-examples"], status["approved"]) == (5, "the next, 7")
    shown = fedcommons("federate", "status", store)
    assert "policy: min-examples     5" in shown
    assert "policy: share-with-all   no" in shown
    (store / "policy.toml").write_text("min-exmaples = 5\n")
    assert "'min-exmaples' is no rule" in fedcommons("federate", "status", store, code=2)
    fedcommons("federate", "approve", store, "--exchange", 0, code=2)
    fedcommons("federate", "recover", store, "--commit", "ab" * 32, code=7)
    member = app[1] / "sites" / "site-0"
    before = json.loads(fedcommons("federate", "status", member, "--json"))
    fedcommons("federate", "recover", member, "--commit", before["digest"])
    after = json.loads(fedcommons("federate", "status", member, "--json"))
    assert after["recovers_to"] == before["digest"]


def test_a_review_shows_what_leaves_and_the_hash(app):
    shown = fedcommons("federate", "review", app[0])
    assert "what leaves: the coded answer alone" in shown
    found = fedcommons("federate", "review", app[0], "--hash").strip()
    assert found in shown
    assert json.loads(fedcommons("federate", "review", app[0], "--json"))["hash"] == found
    fedcommons("federate", "review", app[1], code=8)


def test_a_new_key_is_written_and_pinned_by_who_gets_it(tmp_path):
    store, peers = tmp_path / "store", tmp_path / "peers.toml"
    old = fedcommons("federate", "identity", store).strip()
    peers.write_text(f'[peers]\nhospital-a = "{old}"\n')
    statement = tmp_path / "statement"
    new = fedcommons("federate", "identity", store, "--rotate", statement).strip()
    assert len({old, new}) == 2
    assert fedcommons("federate", "identity", store).strip() == new
    assert f"hospital-a is pinned: {new}" in fedcommons("federate", "trust", statement, peers)
    assert f"pinned already: {new}" in fedcommons("federate", "trust", statement, peers)
    other = tmp_path / "other"
    fedcommons("federate", "identity", other)
    said = fedcommons("federate", "trust", statement, other, code=8)
    assert "the statement must be of a site whose key is pinned in" in said


def test_certificates_that_expire_soon_are_warned_about(tmp_path, monkeypatch):
    with monkeypatch.context() as then:
        then.setattr(certificates, "SERVER_DAYS", 20)
        certificates.write_tls(tmp_path / "tls")
    assert "server.pem expires in 19 days" in fedcommons(
        "federate", "tls", tmp_path / "tls", "--check", code=8
    )
    said = fedcommons("federate", "proxy", tmp_path / "p", "--tls", tmp_path / "tls")
    assert "warning" in said
    assert "expires in 19 days" in said
    said = fedcommons("federate", "tls", tmp_path / "tls", "--renew", "--within", 60, "--json")
    assert json.loads(said)["replaced"]
    fedcommons("federate", "tls", tmp_path / "tls", "--check")
