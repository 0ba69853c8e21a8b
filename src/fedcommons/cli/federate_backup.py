"""`fedcommons federate backup`, `restore` and `upgrade`: what a site or server has on its disk."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedcommons.cli import screen
from fedcommons.cli.extras import need_flower
from fedcommons.cli.options import AsJson
from fedcommons.errors import ArgumentError

if TYPE_CHECKING:
    from fedcommons.federate.backup.archive import Manifest

Saved = Annotated[Path, typer.Argument(help="A site's store, or the server's state-dir.")]
PassphraseFile = Annotated[
    Path | None, typer.Option(help="A file whose first line is the passphrase.")
]


def backup(
    folder: Saved,
    file: Annotated[Path, typer.Argument(help="A new file.")],
    encrypt: Annotated[
        bool, typer.Option("--encrypt", help="Encrypt it, with a passphrase that is asked for.")
    ] = False,
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Save a site's store or the server's state-dir to one file.

    The SuperNode or the run may go on meanwhile. The file holds private keys
    and examples (of a server: the model and the sites' last answers), so only
    you can read it; with --encrypt or --passphrase-file nobody who lacks the
    passphrase can. A backup keeps what is withdrawn later: remove older ones
    then.

    Example: fedcommons federate backup /srv/hospital-a/store store.backup
    """
    need_flower()
    from fedcommons.federate.backup import backups

    passphrase = _passphrase(passphrase_file, ask=encrypt, confirm=True)
    made = backups.back_up(folder, file, passphrase)
    size = file.stat().st_size
    if passphrase is None:
        screen.say(
            f"fedcommons: warning: {file} holds private keys and data in the clear: keep it as "
            "you keep the folder, or make it with --encrypt",
            err=True,
        )
    if as_json:
        screen.say_json(
            {"file": str(file), "bytes": size, "encrypted": passphrase is not None, **_listed(made)}
        )
    else:
        screen.say(f"{file}: {_in_words(made)}; {size} bytes")


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `federate backup` wrote.")],
    folder: Annotated[Path | None, typer.Argument(help="A folder that is new or empty.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only read the file, and say what it is of.")
    ] = False,
    expect: Annotated[
        str,
        typer.Option(help="What it must be of: the site, its key's beginning, or the federation."),
    ] = "",
    passphrase_file: PassphraseFile = None,
    as_json: AsJson = False,
) -> None:
    """Make a site's store or the server's state-dir of a backup.

    All of the file is checked before anything is put into place. What a store
    or state-dir from before means for the federation is said at the end.

    Example: fedcommons federate restore store.backup /srv/hospital-a/store
    """
    need_flower()
    from fedcommons.federate.backup import backups
    from fedcommons.federate.backup.sealing import is_sealed

    if check == (folder is not None):
        raise ArgumentError("either a folder or --check must be given")
    ask = False
    with contextlib.suppress(OSError), file.open("rb") as opened:
        ask = is_sealed(opened) and passphrase_file is None
    passphrase = _passphrase(passphrase_file, ask=ask, confirm=False)
    if folder is None:
        found = backups.check(file, passphrase, expected=expect)
    else:
        found = backups.restore(file, folder, passphrase, expected=expect)
    if as_json:
        screen.say_json({"folder": None if folder is None else str(folder), **_listed(found)})
        return
    screen.say(f"{file} is whole: {_in_words(found)}")
    if folder is not None:
        screen.say(
            f"{folder} is restored. Before it takes part again:", *_what_to_do(found, folder)
        )


def upgrade(folder: Saved, as_json: AsJson = False) -> None:
    """Bring a site's store or the server's state-dir into the present format.

    That happens by itself when a SuperNode or a run opens it. This does it
    beforehand, reads all of it, and says what version it had. Make a backup
    first: an older fedcommons cannot open it afterwards.

    Example: fedcommons federate upgrade /srv/hospital-a/store
    """
    need_flower()
    from fedcommons.federate.backup import backups

    found = backups.upgrade(folder)
    if as_json:
        screen.say_json({"kind": found.kind, "from": found.before, "to": found.now, **found.about})
    elif found.before == found.now:
        screen.say(
            f"{folder} is a {found.kind} in format version {found.now}, the newest, and whole"
        )
    else:
        screen.say(
            f"{folder} is a {found.kind} and now in format version {found.now}; it was in version "
            f"{found.before}"
        )


def _passphrase(file: Path | None, *, ask: bool, confirm: bool) -> str | None:
    if file is not None:
        try:
            return file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise ArgumentError(f"passphrase-file {file} cannot be read: {error}") from None
    if not ask:
        return None
    if not sys.stdin.isatty():
        raise ArgumentError(
            "a passphrase is asked for at a terminal, and here is none: give --passphrase-file FILE"
        )
    try:
        return str(
            typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm, err=True)
        )
    except typer.Abort:  # Ctrl-C, or the end of the input
        raise KeyboardInterrupt from None


def _listed(manifest: Manifest) -> dict[str, Any]:
    return {
        "kind": manifest.kind,
        "format": manifest.format_version,
        "made": manifest.made,
        "by": manifest.by,
        **manifest.about,
    }


def _in_words(manifest: Manifest) -> str:
    about = manifest.about
    commit = ".".join(map(str, about["commit"])) if about["commit"] else "none"
    of = f"federation {about['federation'] or '-'}, commit {commit}"
    if manifest.kind == "store":
        who = f"the store of {about['site'] or 'a site'} (key {about['identity'][:16]}...)"
    else:
        rounds = ", ".join(f"round {n} of {name}" for name, n in about["rounds"].items())
        who = f"a state-dir at {rounds or 'no round yet'}"
    return f"{who}, {of}, as it was at {manifest.made}"


def _what_to_do(manifest: Manifest, folder: Path) -> list[str]:
    """What it means that a folder is as it was before."""
    if manifest.kind != "store":
        return [
            f"- rounds after {manifest.made} are trained again, from the model of then",
            "- commits from after that, withdrawals among them, come from the sites: let the next "
            "run wait for all of them (sites, wait)",
            "- quarantines from after that are not known any more",
        ]
    return [
        f"- withdraw again what was withdrawn after {manifest.made}: fedcommons federate withdraw "
        f"{folder} --rows ... (--as-offered if the data file has changed). Until then the "
        "federation refuses this site (StoreIsOlder), and its log names the rows",
        f"- any further exchange needs your word: fedcommons federate approve {folder}",
        "- if the identity key was replaced after that, the others refuse this store: take a later "
        "backup, or make a new store and have its key pinned",
        "- make sure that no other copy of this store is in use",
    ]
