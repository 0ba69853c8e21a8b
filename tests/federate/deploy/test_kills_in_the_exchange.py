"""Sites die in the exchange, each in its own way, and nothing is lost.

In one run: a sender's ClientApp while it sends, a whole SuperNode at the same time, and a
recipient's ClientApp just after it has stored what it was given. A minute goes by until Flower
notices such a death, so they share it.
"""

import json
import re

import pytest

from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.demo import history
from fedcommons.federate.deploy.deployment import Deployment
from fedcommons.federate.deploy.supervisor import wait_until
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.site.status import ledger_of, status_of
from fedcommons.federate.site.store import Store

SENDER, RECIPIENT, MACHINE = "site-0", "site-1", "site-2"
SITES = [SENDER, RECIPIENT, MACHINE]


@pytest.fixture
def deployment(tmp_path):
    once = {
        SENDER: {"FEDCOMMONS_CRASH_AT": "store.sent:before"},
        RECIPIENT: {"FEDCOMMONS_CRASH_AT": "store.received:after"},
    }
    for site, variables in once.items():
        variables["FEDCOMMONS_CRASH_ONCE"] = str(tmp_path / f"{site}-died")
    with Deployment() as running:
        running.add_sites(SITES, environment=once)
        for site in SITES:
            running.set_policy(site, {"share-with-all": True})
        yield running


def read(deployment, site):
    """A site's status, and its ledger without bookkeeping."""
    store = Store(deployment.nodes[site].store)
    try:
        return status_of(store), ledger_of(store)
    finally:
        store.close()


def test_deaths_in_the_exchange_lose_nothing(deployment, tmp_path):
    app, state = deployment.folder / "digits", deployment.folder / "state"
    write_app(app)
    config = {"state-dir": str(state), "sites": 3, "copies": 2, "num-rounds": 1, "timeout": 420.0}
    run = deployment.operator.start_run(app, config)

    wait_until("sender's death", (tmp_path / f"{SENDER}-died").exists, 90)
    machine = deployment.nodes[MACHINE].supernode
    machine.kill()  # SIGKILL to SuperNode, SuperExec and ClientApp
    ended = deployment.operator.finish_run(run, 700)

    assert ended.is_completed, ended.log
    assert (tmp_path / f"{RECIPIENT}-died").exists()
    assert f"{SENDER}: client crashed" in ended.log
    assert f"{RECIPIENT}: client crashed" in ended.log

    # The SuperNode was refused until its death was noticed, and came back under the same id.
    log = machine.log.read_text()
    assert machine.starts > 2
    assert "Exit Code: 305" in log
    assert len(re.findall(r"SuperNode ID: (\d+)", log)) == 2
    assert len(set(re.findall(r"SuperNode ID: (\d+)", log))) == 1

    # Every delivery has its receipt, the commit has every delivery, and all train under it.
    receipts = json.loads((state / "exchange.json").read_text())["receipts"]
    (record,) = (state / "commits").glob("*.json")
    commit = Commit.decode(record.read_bytes())
    assert len(receipts) == len(commit.pairs) == 6
    assert [site["answered"] for site in history(state)[1]["sites"]] == [True] * 3

    # Each holds what the others shared, stored once although it was sent twice.
    for site in SITES:
        status, ledger = read(deployment, site)
        others = {other: read(deployment, other)[0]["own_shareable"] for other in SITES}
        del others[site]
        assert status["held_from_others"] == others
        assert status["examples_of_all"] == commit.n_examples == 300
        received = [(e["peer"], e["chunk"]) for e in ledger if e["event"] == "received"]
        assert sorted(received) == sorted((other, 0) for other in others)
