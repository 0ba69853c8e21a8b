"""What a simulation's nodes do without, and what a real site never may."""

import contextlib
import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.superlink.grid import InMemoryGrid

from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.protocol import versions
from fedcommons.federate.protocol.refusals import PeersNotPinned
from fedcommons.federate.transport import node_config, simulation
from fedcommons.federate.transport.embedded_grid import EmbeddedGrid
from fedcommons.federate.transport.flower_internals import as_task
from fedcommons.flower import CodedSum, SiteData, attach, coded, run_embedded, share
from tests.federate.tiny import gradient, in_child, initial

PARTITION = {"partition-id": 3, "num-partitions": 5}


def context(config, run_config=None):
    return Context(17, 2, dict(config), RecordDict(), dict(run_config or {}))


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


# The defaults


def test_a_simulated_site_is_named_after_its_partition_and_has_a_store_beside_the_server(tmp_path):
    node = context(PARTITION, {"state-dir": str(tmp_path)})
    with simulation.simulating():
        assert node_config.site_name(node, "ab" * 32) == "site-3"
        assert node_config.store_folder(node) == tmp_path / "simulation" / "sites" / "site-3"
        assert node_config.peers_from_node_config(node) is None


def test_without_a_state_dir_each_run_has_a_folder_of_its_own(home):
    assert simulation.state_folder({}, 17) == home / "fedcommons" / "17"


@pytest.mark.parametrize(
    "more", [{}, {"data": "/data.npz"}, {"site": "a"}, {"peers": "/peers.toml"}], ids=str
)
def test_a_real_site_that_names_no_store_is_refused(more):
    """Whatever its node config looks like: nothing proves that it is simulated."""
    with pytest.raises(ArgumentError, match="store must be the folder"):
        node_config.store_folder(context({**PARTITION, **more}))


def test_a_real_site_must_pin_its_peers_although_it_has_a_partition():
    with pytest.raises(PeersNotPinned):
        node_config.peers_from_node_config(context({**PARTITION, "store": "/store"}))


@pytest.mark.parametrize("name", ["store", "site", "peers", "data"])
def test_what_is_set_at_a_node_makes_it_a_real_one_in_a_simulation_too(name):
    with simulation.simulating():
        assert simulation.is_simulated(context(PARTITION))
        assert not simulation.is_simulated(context({**PARTITION, name: "x"}))


@pytest.mark.parametrize(("actor", "simulated"), [("ab12", True), (None, False)])
def test_an_actor_of_ray_is_simulated_and_ray_alone_is_no_proof(monkeypatch, actor, simulated):
    runtime = SimpleNamespace(get_actor_id=lambda: actor)
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: runtime)
    monkeypatch.setitem(sys.modules, "ray", ray)
    assert simulation.is_simulated(context(PARTITION)) == simulated


def test_flowers_own_grid_is_known_by_its_class():
    """By its name: it is no documented one."""
    assert InMemoryGrid.__name__ == simulation.ENGINE


# A whole federation


def partition_of(context):
    rng = np.random.default_rng(int(context.node_config["partition-id"]))
    return SiteData.from_arrays(
        rng.normal(size=(6, 4)), rng.integers(0, 3, 6), np.arange(6) % 2 == 0
    )


def client_app():
    app = ClientApp()
    site = attach(app, data=partition_of)
    app.train(mods=[coded(site)])(lambda message, context: gradient(site, message, context))
    return app, site


def server_app(found, **sharing):
    app = ServerApp()

    @app.main()
    def main(grid, context):
        federation = share(grid, context, **sharing)
        try:
            CodedSum(federation, learning_rate=0.1).start(grid, initial(), 2)
            found.append(federation)
        finally:
            federation.close()

    return app


def run(n, run_config, **sharing):
    found, (app, site) = [], client_app()
    nodes = [{"partition-id": k, "num-partitions": n} for k in range(n)]
    run_embedded(server_app(found, **sharing), app, nodes, run_config)
    site.close()
    return found[0]


def test_a_simulation_needs_no_settings_but_copies(home):
    first, second = run(3, {"copies": 1}), run(3, {"copies": 1})
    assert [member.site for member in first.commit.members] == ["site-0", "site-1", "site-2"]
    assert first.state.folder.parent == home / "fedcommons"
    assert first.state.folder != second.state.folder  # each run begins anew
    for member in first.commit.members:
        assert (first.state.folder / "sites" / member.site / "store.sqlite3").exists()


def test_with_a_state_dir_the_next_run_goes_on_apart_from_real_sites(tmp_path):
    config = {"copies": 1, "state-dir": str(tmp_path)}
    first, second = run(3, config), run(3, config)
    assert first.commit.record == second.commit.record
    assert [path.name for path in tmp_path.iterdir()] == ["simulation"]


@pytest.mark.usefixtures("home")
def test_copies_are_as_many_as_there_are_others_and_all_sites_take_part(caplog):
    commit = run(3, {"copies": 7, "sites": 2}).commit
    assert (commit.copies, len(commit.members)) == (2, 3)
    assert "copies is 2 instead of 7, because 3 sites are simulated" in caplog.text
    assert "num-supernodes=8" in caplog.text


def test_a_real_server_must_be_told_its_state_dir(tmp_path):
    app, site = client_app()
    nodes = [{"partition-id": k, "store": str(tmp_path / str(k))} for k in range(2)]
    with pytest.raises(ArgumentError, match="state-dir must be given"):
        run_embedded(server_app([], copies=1), app, nodes, {})
    site.close()


# Copies of the app, in other processes and at the same time


def divided(context):
    """Sixty examples, divided among the sites that there are."""
    config = context.node_config
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 4)), rng.integers(0, 3, 60)
    mine = np.array_split(np.arange(60), config["num-partitions"])[config["partition-id"]]
    return SiteData.from_arrays(x[mine], y[mine], np.arange(len(mine)) % 2 == 0)


@pytest.mark.parametrize("n", [2, 4])
def test_another_number_of_sites_than_the_exchange_had_is_explained(tmp_path, caplog, n):
    """An app that divides its data gives each site other data: nobody can answer."""
    config = {"copies": 1, "state-dir": str(tmp_path)}

    def train(n_sites, num_rounds):
        app = ServerApp()

        @app.main()
        def main(grid, context):
            with contextlib.closing(share(grid, context)) as federation:
                CodedSum(federation).start(grid, initial(), num_rounds)

        client = ClientApp()
        site = attach(client, data=divided)
        client.train(mods=[coded(site)])(lambda message, context: gradient(site, message, context))
        nodes = [{"partition-id": k, "num-partitions": n_sites} for k in range(n_sites)]
        try:
            run_embedded(app, client, nodes, config)
        finally:
            site.close()

    train(3, 1)
    pattern = "nobody answered" if n < 3 else "All sites say DataChanged: its data are not those"
    with pytest.raises(FederationError, match=pattern):
        train(n, 2)
    assert f"the exchange was made by 3 sites, and {n} are simulated now" in caplog.text
    assert "Run it with 3 sites, or make a new exchange with reshare = true" in caplog.text
    assert str(tmp_path / "simulation") in caplog.text
    train(3, 2)  # nothing is lost


def test_a_copy_of_the_app_trains_beside_the_functions_that_know_the_original(tmp_path):
    """Flower's simulation sends one with every message; the app's own module is not copied."""
    config = {"copies": 1, "state-dir": str(tmp_path)}
    run(3, config)
    _, site = client_app()
    app = ClientApp()
    app.train(mods=[coded(pickle.loads(pickle.dumps(site)))])(  # noqa: S301 (our own)
        lambda message, context: gradient(site, message, context)
    )
    reply = answer(app, tmp_path)
    assert reply.content.array_records["answer"]["beta"].numpy().any()


def test_one_store_serves_two_processes_at_once(tmp_path):
    """The simulation may hand two messages of one node to two actors."""
    config = {"copies": 1, "state-dir": str(tmp_path)}
    run(3, config)
    start, children = tmp_path / "start", 4

    def main():
        while not start.exists():
            pass
        for _ in range(5):  # as if each message met another actor
            app, site = client_app()
            while not answer(app, tmp_path).has_content():
                pass  # another process was asked with a higher number meanwhile
            site.close()

    with ThreadPoolExecutor(children) as pool:
        codes = [pool.submit(in_child, main) for _ in range(children)]
        start.touch()
        assert [code.result() for code in codes] == [0] * children


def answer(app, state_dir):
    """The first site's reply to a training message under the newest commit."""
    (commit,) = (state_dir / "simulation" / "commits").iterdir()
    fields = {
        "protocol": versions.CURRENT, "question": time.time_ns(),
        "commit": commit.read_bytes(), "given-up": 0, "round": 3, "task": "answer",
        "local-steps": 1, "batch-size": 0,
    }  # fmt: skip
    content = RecordDict({"fedcommons": ConfigRecord(fields), "arrays": initial()})
    nodes = [{"partition-id": 0, "num-partitions": 3}]
    grid = EmbeddedGrid(app, nodes, {"state-dir": str(state_dir)})
    (node,) = grid.contexts
    with as_task(grid.run_id, 1):
        ids = grid.push_messages([Message(content, dst_node_id=node, message_type="train")])
    (reply,) = grid.pull_messages(ids)
    return reply
