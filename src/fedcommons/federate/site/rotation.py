"""A site's new identity key: how it is made, and how its peers come to pin it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from fedcommons.errors import FederationError
from fedcommons.federate.protocol.durable import write_file
from fedcommons.federate.protocol.refusals import Refusal
from fedcommons.federate.protocol.rotations import Rotations
from fedcommons.federate.site.decoded import decoded_commit
from fedcommons.federate.site.peers_file import PinnedKeys, pinned_in
from fedcommons.federate.site.store import Store

MOST_BYTES = 1 << 20  # of a statement
HEADER = re.compile(r"^[ \t]*\[[ \t]*replaced[ \t]*\][^\n]*\n?", re.M)


def rotate_identity(store: Store, statement: Path) -> None:
    """Make a new identity, unless the one before is new still; write what proves it to a file."""
    identities, record = store.keyring.identities, store.commit_record()[1]
    members = decoded_commit(record).members if record else ()
    newest = identities[-1].name
    is_used = store.epochs.lists(newest) or newest in {member.identity for member in members}
    if len(identities) < 2 or is_used:
        store.keyring.rotate()
    record = Rotations.of(store.keyring.identities).encode()
    write_file(statement, record + b"\n", "store.statement")


def read_statement(path: Path) -> Rotations:
    """Read and check what `rotate_identity` wrote at another site."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES)
        return Rotations.decode(content.rstrip(b"\r\n"))
    except OSError as error:
        raise FederationError(f"{path} cannot be read: {error.strerror or error}") from None
    except Refusal as error:
        raise FederationError(f"{path} is no statement of a new key: {error}") from None


def trust_in_store(store: Store, rotations: Rotations) -> str | None:
    """Trust a site's newest key where its first was trusted; the site, None if it is already."""
    site = _site_of(rotations, store.keyring.trusted_peers(), store.folder)
    if site is not None:
        store.keyring.replace_peer(site, rotations.newest, rotations.keys[:-1])
    return site


def trust_in_file(path: Path, rotations: Rotations) -> str | None:
    """Pin a site's newest key instead of one that it replaced; the site, None if it is pinned.

    The rest of the file stays as it is.
    """
    try:
        text, status = path.read_text(encoding="utf-8"), path.stat()
    except (OSError, UnicodeDecodeError) as error:
        raise FederationError(f"{path} cannot be read: {error}") from None
    try:
        before = pinned_in(text, path)
    except Refusal as error:
        raise FederationError(str(error)) from None
    site = _site_of(rotations, before.keys, path)
    if site is None:
        return None
    old = before.keys[site]
    new = {key: site for key in rotations.keys[:-1] if key not in before.replaced}
    lines = "".join(f'{key} = "{site}"\n' for key in new)
    text = text.replace(f'"{old}"', f'"{rotations.newest}"').replace(
        f"'{old}'", f'"{rotations.newest}"'
    )
    found = HEADER.search(text)
    if found:
        text = f"{text[: found.end()].rstrip()}\n{lines}{text[found.end() :]}"
    else:
        text = f"{text.rstrip()}\n\n[replaced]\n{lines}"
    after = PinnedKeys(before.keys | {site: rotations.newest}, before.replaced | new)
    if pinned_in(text, path) != after:
        raise FederationError(f"{path} cannot be changed: write {site} = {rotations.newest!r}")
    write_file(path, text.encode(), "peers.pinned")
    path.chmod(status.st_mode)
    if not os.geteuid():
        os.chown(path, status.st_uid, status.st_gid)
    return site


def _site_of(rotations: Rotations, keys: Mapping[str, str], where: Path) -> str | None:
    """The site that has replaced the key that is pinned for it; None if its newest is."""
    if rotations.newest in keys.values():
        return None
    sites = [site for site, key in keys.items() if key in rotations.keys]
    if len(sites) != 1:
        raise FederationError(
            f"the statement must be of a site whose key is pinned in {where}, but it replaces "
            f"{'none' if not sites else 'several'} of the keys there"
        )
    return sites[0]
