"""A site's folder: all that its SuperNode is started with, by the file `site.toml` in it.

A kit is such a folder without keys, which are made where they stay (`join`). All paths in the file
are relative to it.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedcommons import checks
from fedcommons.errors import ArgumentError, FederationError
from fedcommons.federate.deploy import programs
from fedcommons.federate.deploy.certificates import DNS_NAME, write_node_key, write_public_half
from fedcommons.federate.protocol.records import NAME
from fedcommons.federate.site.store import Store

FILE = "site.toml"
FIRST_USE = "first-use"
PORT = 9094
KEYS = ("site", "server", "port", "data", "held-out", "store", "peers", "node-config")


@dataclass(frozen=True, slots=True)
class SiteFolder:
    """What `site.toml` says.

    Attributes:
        folder: where it is; whole.
        site: the site's name.
        server: the address and port that SuperNodes connect to.
        port: of the SuperNode's own processes, on loopback.
        data, held_out: the data files; the second may be missing.
        store: the folder of the site's store.
        peers: the file of pinned keys, or `FIRST_USE`.
        more: further keys of the node config, such as label-column.
    """

    folder: Path
    site: str
    server: str
    port: int = PORT
    data: str = "data.npz"
    held_out: str | None = None
    store: str = "store"
    peers: str = "peers.toml"
    more: Mapping[str, str | int | float | bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.site):
            raise ArgumentError(f"site must be letters, digits, . _ -, got {self.site!r}")
        check_address("server", self.server)
        checks.integer("port", self.port, low=1, high=2**16 - 1)
        for name in ("data", "store", "peers"):
            if not isinstance(getattr(self, name), str) or not getattr(self, name):
                raise ArgumentError(f"{name} must be a path, got {getattr(self, name)!r}")
        for key, value in self.more.items():
            if not isinstance(value, str | int | float | bool) or key in KEYS:
                raise ArgumentError(f"node-config: {key} cannot be {value!r}")

    @classmethod
    def read(cls, folder: Path) -> SiteFolder:
        path = folder.absolute() / FILE
        if not path.is_file():
            raise ArgumentError(f"folder must be a site's, with {FILE}, got {folder}")
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
            if unknown := sorted(set(content) - set(KEYS)):
                raise ArgumentError(f"{unknown[0]!r} must be one of {', '.join(KEYS)}")
            for key in ("site", "server"):
                if key not in content:
                    raise ArgumentError(f"{key} is missing")
                if not isinstance(content[key], str):
                    raise ArgumentError(f"{key} must be text in quotes, got {content[key]!r}")
            more = content.pop("node-config", {})
            if not isinstance(more, dict):
                raise ArgumentError("node-config must be a table")
            fields = {key.replace("-", "_"): value for key, value in content.items()}
            return cls(folder=folder.absolute(), more=more, **fields)
        except ArgumentError as error:
            raise ArgumentError(f"{path}: {error}") from None
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise ArgumentError(f"{path} cannot be read: {error}") from None

    @property
    def ca(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def node_key(self) -> Path:
        return self.folder / "node.key"

    @property
    def public_key(self) -> Path:
        return self.folder / "node.pub"

    @property
    def store_folder(self) -> Path:
        return self.folder / self.store

    @property
    def data_file(self) -> Path:
        return self.folder / self.data

    @property
    def held_out_file(self) -> Path | None:
        return None if self.held_out is None else self.folder / self.held_out

    @property
    def peers_file(self) -> Path | None:
        """None where the first use of a name is trusted."""
        return None if self.peers == FIRST_USE else self.folder / self.peers

    @property
    def node_config(self) -> dict[str, Any]:
        """What Flower passes on to the app at this site."""
        found = {"site": self.site, "data": str(self.data_file), **self.more}
        if self.held_out_file is not None:
            found["held-out"] = str(self.held_out_file)
        return {
            **found,
            "store": str(self.store_folder),
            "peers": str(self.peers_file or self.peers),
        }

    def command(self) -> list[str]:
        """The command of the site's SuperNode."""
        return programs.supernode(
            self.server, self.port, ca=self.ca, key=self.node_key, config=self.node_config
        )

    def environment(self) -> dict[str, str]:
        """The environment of the site's SuperNode, with a home of Flower's in the folder."""
        home = self.folder / "flower"
        home.mkdir(exist_ok=True, mode=0o700)
        return programs.environment(home, {})


def join(place: SiteFolder) -> str:
    """Make the site's keys, unless it has them: its identity, in hexadecimal."""
    try:
        place.folder.chmod(0o700)
        if place.node_key.exists():
            if not place.public_key.exists():
                write_public_half(place.node_key)
        elif place.public_key.exists():
            raise FederationError(
                f"{place.public_key} is there, but not {place.node_key}: put the key back, or "
                f"remove {place.public_key.name}, and have the operator register the new one"
            )
        else:
            write_node_key(place.node_key)
        place.store_folder.mkdir(exist_ok=True, mode=0o700)
        place.store_folder.chmod(0o700)
    except OSError as error:
        raise FederationError(f"{place.folder} cannot be written: {error}") from None
    with contextlib.closing(Store(place.store_folder, create=True)) as store:
        return store.identity.name


def check_address(name: str, text: str) -> None:
    """An address goes into commands and configurations, so it must be one and nothing more."""
    host, _, port = str(text).rpartition(":")
    is_host = (DNS_NAME.fullmatch(host) and host[0] != "*") or re.fullmatch(
        r"\[[0-9a-fA-F:.]+\]", host
    )
    if not is_host or not (port.isascii() and port.isdigit() and 0 < int(port) < 2**16):
        raise ArgumentError(
            f"{name} must be an address and a port up to 65535, as in fed.org:9092, 0.0.0.0:9092 "
            f"or [::]:9092, got {text!r}"
        )
