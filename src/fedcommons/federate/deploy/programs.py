"""Flower's programs: how to call them and read what they print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedcommons.errors import FederationError
from fedcommons.federate.deploy.certificates import Tls

NODE_IS_UP = "SuperNode ID:"  # printed once the SuperLink has accepted the node
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}
PROMPT = {  # a node starts a process for every message: make that quick
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.3",
    "PYTHONDONTWRITEBYTECODE": "",
}
THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}  # many processes share a machine


def environment(home: Path, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of an offline Flower with this home, and this Python's programs first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"FLWR_HOME": str(home), "PATH": path}
    return {**os.environ, **OFFLINE, **PROMPT, **given, **own}


def superlink(host: str, port: int, tls: Tls, database: Path | None) -> list[str]:
    """The command of a SuperLink that only accepts SuperNodes with registered keys."""
    return [
        _program("flower-superlink"),
        *("--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", str(tls.ca)),
        *("--ssl-certfile", str(tls.superlink_certificate)),
        *("--ssl-keyfile", str(tls.superlink_key)),
        "--enable-supernode-auth",
        *(("--database", str(database)) if database else ()),
    ]


def supernode(
    superlink: str, port: int, *, ca: Path, key: Path, config: Mapping[str, Any]
) -> list[str]:
    """The command of a SuperNode: the SuperLink's address, its own port, and its node config."""
    return [
        _program("flower-supernode"),
        *("--superlink", superlink, "--port", str(port)),
        *("--root-certificates", str(ca)),
        *("--auth-supernode-private-key", str(key)),
        *("--node-config", pairs(config)),
    ]


def flwr(*arguments: str) -> list[str]:
    """The command line of `flwr` with these arguments."""
    return [_program("flwr"), *arguments]


def _program(name: str) -> str:
    """The path of a program in this Python's environment."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise FederationError(f"{path} is missing: pip install 'fedcommons[flower]'")
    return str(path)


def pairs(values: Mapping[str, Any]) -> str:
    """Pairs key=value in the form that Flower's command line expects."""
    return " ".join(f"{key}={json.dumps(value)}" for key, value in values.items())


def connection(name: str, address: str, ca: Path) -> str:
    """An entry of Flower's config.toml."""
    return (
        f"[superlink.{name}]\naddress = {json.dumps(address)}\n"
        f"root-certificates = {json.dumps(str(ca))}\n\n"
    )


def last_json(output: str) -> dict[str, Any]:
    """The JSON object at the end of what a command printed."""
    start = output.rfind("\n{")
    try:
        return json.loads(output[start + 1 :] if start >= 0 else output)
    except ValueError:
        raise FederationError("Flower's answer is not JSON").showing(output[-2000:]) from None
