"""A real federation with one slow site: rounds a minute, and how many of its answers count.

    python benchmarks/late.py [--sites 5] [--slow 30] [--deadline 8] [--rounds 40] [--json FILE]

A SuperLink, TLS and authenticated SuperNodes on this machine. One site sleeps so many seconds
before it trains; a round waits for the deadline at most. Late answers are remembered. Aimed at, on
a machine that does nothing else: seven rounds a minute with five sites, one of 30 s, and 8 s; and
every answer of the slow site counts. The load of the machine is measured and printed with it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError
from fedcommons.federate.apps.new_app import write_app
from fedcommons.federate.deploy.demo import history
from fedcommons.federate.deploy.deployment import Deployment

AIM = 7.0  # rounds a minute
SLEEP = "FEDCOMMONS_BENCHMARK_SLEEP"


def write_slow_app(folder: Path) -> None:
    """The app of `federate new`, in which a site sleeps before it trains if it is told to."""
    write_app(folder)
    path = folder / folder.name / "client_app.py"
    text = path.read_text()
    line = "    from digits import task  # not needed in the exchange\n"
    if line not in text:
        raise FederationError(f"{path} is not as it was when this benchmark was written")
    sleep = f'    time.sleep(float(os.environ.get("{SLEEP}", 0)))\n'
    path.write_text("import os\nimport time\n\n" + text.replace(line, sleep + line))


def measure(
    n_sites: int, slow: float, deadline: float, rounds: int, seconds: float
) -> dict[str, Any]:
    sites = [f"site-{k}" for k in range(n_sites)]
    load_before = os.getloadavg()[0]
    with Deployment() as deployment:
        deployment.add_sites(sites, environment={sites[-1]: {SLEEP: str(slow)}})
        app, state = deployment.folder / "digits", deployment.folder / "state"
        write_slow_app(app)
        config = {
            "state-dir": str(state),
            "sites": n_sites,
            "num-rounds": rounds,
            "deadline": deadline,
            "estimator": "memory",
            "warm": False,
            "late": "remember",
            "evaluate-every": rounds,
        }
        run = deployment.operator.run(app, config, seconds)
        notes = history(state)[1:]
        if not run.is_completed:
            print(run.log[-4000:])
    of_slow = [one for note in notes for one in note["sites"] if one["site"] == sites[-1]]
    late = [one for one in of_slow if one["asked_in"] is not None]
    others = [one for note in notes for one in note["sites"] if one["site"] != sites[-1]]
    took = sum(note["seconds"] for note in notes)
    return {
        "sites": n_sites,
        "slow": slow,
        "deadline": deadline,
        "completed": run.is_completed,
        "rounds": len(notes),
        "seconds": took,
        "rounds a minute": 60 * len(notes) / took if took else 0.0,
        "slow answers that came": len(late) + sum(one["answered"] for one in of_slow),
        "slow answers that count": sum(one["late_counts"] or one["answered"] for one in of_slow),
        "seconds of slow answers": [one["seconds"] for one in late],
        "others in time": sum(one["answered"] for one in others) / max(len(others), 1),
        "load before": load_before,
        "load after": os.getloadavg()[0],
        "processors": os.cpu_count(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--slow", type=float, default=30.0, help="seconds that one site sleeps")
    parser.add_argument("--deadline", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds for all of it")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends what was started
    found = measure(
        *(arguments.sites, arguments.slow, arguments.deadline),
        *(arguments.rounds, arguments.limit),
    )
    print(
        f"{found['rounds']} rounds in {found['seconds']:.0f} s, {found['rounds a minute']:.1f} a "
        f"minute (aimed at: {AIM:g} on an idle machine); load {found['load before']:.1f} to "
        f"{found['load after']:.1f} on {found['processors']} processors"
    )
    print(
        f"the slow site: {found['slow answers that count']} of {found['slow answers that came']} "
        f"answers that came count; the others were in time in {found['others in time']:.0%}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
