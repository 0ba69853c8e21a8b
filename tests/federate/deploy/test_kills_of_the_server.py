"""The server dies before the commit, the SuperLink after it; and what they have on their disks.

One deployment with a database: the ServerApp is killed just before the commit, a second run takes
the exchange up; the SuperLink is killed just after the commit and started again, a third run
trains. All the while the sites' examples are recognisable, and they never were on the server.
"""

import json

import pytest

from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.demo import history
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.supervisor import wait_until
from fedcommons.federate.site.status import ledger_of
from fedcommons.federate.site.store import Store
from tests.federate.deploy.canary import files_with, mark, watched, write_data

SITES = ["site-0", "site-1", "site-2"]


@pytest.fixture
def deployment(tmp_path):
    data = {site: tmp_path / f"{site}.npz" for site in SITES}
    for label, (site, path) in enumerate(data.items()):
        write_data(path, site, label)
    crash = {
        "FEDCOMMONS_CRASH_AT": "server.commit:before",
        "FEDCOMMONS_CRASH_ONCE": str(tmp_path / "server-died"),
    }
    with Deployment(database=True, environment=crash) as running:
        running.add_sites(SITES, data=data)
        for site in SITES:
            running.set_policy(site, {"share-with-all": True, "min-examples": 5})
        yield running


def received(deployment):
    """How often each site noted that it received something."""
    found = {}
    for site in SITES:
        store = Store(deployment.nodes[site].store)
        found[site] = sum(entry["event"] == "received" for entry in ledger_of(store))
        store.close()
    return found


def test_runs_go_on_after_the_server_died_and_its_disk_holds_no_example(deployment, tmp_path):
    app, state = deployment.folder / "canaries", deployment.folder / "state"
    write_app(app)
    config = {"state-dir": str(state), "sites": 3, "copies": 2, "num-rounds": 2}

    identity = deployment.nodes["site-0"].identity.encode()
    marks = [mark(kind, site) for kind in ("private", "shared") for site in SITES]
    with watched(deployment.folder, "superlink.db", [identity, *marks]) as seen:
        first = deployment.operator.start_run(app, config)
        wait_until("ServerApp's death", (tmp_path / "server-died").exists, 120)
        first.kill()
        assert not list((state / "commits").glob("*.json"))
        exchange = (state / "exchange.json").read_bytes()
        assert len(json.loads(exchange)["receipts"]) == 6

        second = deployment.operator.start_run(app, config)
        wait_until("commit", lambda: any((state / "commits").glob("*.json")), 120, poll=0.02)
        deployment.superlink.kill()
        second.kill()
        assert history(state) == [], "the SuperLink should die before the first round ends"
        deployment.start_superlink()
        third = run_when_free(deployment, app, config)

    assert "using the exchange of epoch 1" in third.log
    assert (state / "exchange.json").read_bytes() == exchange, "receipts are kept as they were"
    assert received(deployment) == dict.fromkeys(SITES, 2), "nothing was sent again"
    last = history(state)[-1]
    assert last["round"] == 2
    assert [site["answered"] for site in last["sites"]] == [True] * 3
    assert seen == {identity}, "the database holds the messages' contents, and no example"
    only_sites_have_examples(deployment)


def run_when_free(deployment, app, config):
    """Run; the ServerApp of a killed SuperLink lives, and keeps its folder, for a few seconds."""
    for _ in range(4):
        run = deployment.operator.run(app, config)
        if run.is_completed:
            return run
        assert "is in use by another run" in run.log, run.log
    raise AssertionError(run.log)


def only_sites_have_examples(deployment):
    """Private examples are at their owner alone, shared ones in the clear at sites alone."""
    assert (deployment.folder / "superlink.db-wal").exists()
    for site in SITES:
        assert files_with(mark("private", site), deployment.folder) == set()
        found = files_with(mark("shared", site), deployment.folder)
        assert all(path.parts[1] == "store" for path in found), found
        holders = {path.parts[0] for path in found}
        assert holders == set(SITES) - {site}, "the search finds what recipients keep"
