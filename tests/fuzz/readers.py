"""Every reader of files, with a file that it reads and the damage that is tried on it."""

from __future__ import annotations

import contextlib
import fnmatch
import gzip
import json
import struct
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedcommons import datasets, delay_table, provenance, sharing
from fedcommons.datasets.files import read_idx
from fedcommons.federate.backup import archive
from fedcommons.federate.deploy.site_folder import SiteFolder
from fedcommons.federate.protocol.commit_fields import Member
from fedcommons.federate.protocol.commits import Commit
from fedcommons.federate.protocol.farewells import farewell
from fedcommons.federate.protocol.keys import Identity
from fedcommons.federate.protocol.withdrawals import Withdrawn
from fedcommons.federate.server import results
from fedcommons.federate.server.checkpoints import read_checkpoint
from fedcommons.federate.server.quarantine import Offence, Quarantine
from fedcommons.federate.server.question_numbers import QuestionNumbers
from fedcommons.federate.server.standardisation import read_scale
from fedcommons.federate.server.state import ServerState
from fedcommons.federate.server.withdrawals import withdraw
from fedcommons.federate.site.data_files import load_site_data
from fedcommons.federate.site.peers_file import read_peers
from fedcommons.federate.site.policy import read_policy
from fedcommons.figures import federation
from fedcommons.placement import Placement
from fedcommons.plan.files import read_labels, read_sites
from fedcommons.simulate import definition, recordings, run_record, studies
from tests.fuzz import mutations
from tests.fuzz.mutations import Mutation

RNG = np.random.default_rng(0)


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader, the name of its file, how a good one is written, and what damage is tried."""

    name: str
    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    mutations: tuple[Mutation, ...] = mutations.BYTES


def _placement(path: Path) -> None:
    owner = np.repeat(np.arange(4), 5)
    marks = np.arange(20) % 2 == 0
    sharing.randomised(owner, marks, 2, n_clients=4, rng=np.random.default_rng(0)).save(path)


def _dataset(path: Path) -> None:
    x, y = RNG.random((6, 3)), np.arange(6) % 3
    np.savez_compressed(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])


def _backup(path: Path) -> None:
    folder = path.with_name("saved")
    (folder / "more").mkdir(parents=True, exist_ok=True)
    (folder / "a.json").write_text('{"a": 1}')
    (folder / "more" / "b").write_bytes(bytes(range(256)) * 5)
    files = archive.entries_of(folder)
    made = archive.Manifest("store", 6, "2027-01-01T00:00:00+00:00", "1", {"site": "a"}, files)
    archive.write(path, folder, made, None)


def _site_file(path: Path) -> None:
    path.write_text('site = "a"\nserver = "h:1"\nport = 9\n[node-config]\nscale = 1.5\n')


def _csv_table(path: Path) -> None:
    rows = [f"{k / 7:.3f},{'abc'[k % 3]},{'yn'[k % 2]}" for k in range(8)]
    path.write_text("\n".join(["a,b,label", *rows]))


def _site_npz(save: Callable[..., None]) -> Callable[[Path], None]:
    x, y = RNG.random((6, 3)).astype(np.float32), np.arange(6) % 3
    return lambda path: save(path, x=x, y=y, shareable=np.arange(6) < 3)


def _table(path: Path) -> None:
    columns = {"a": RNG.random(6), "b": np.arange(6), "label": np.arange(6) % 3}
    pandas = {"index_columns": ["__index_level_0__"], "columns": []}
    table = pa.table({**columns, "shareable": np.arange(6) < 3})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(pandas)}), path)


def _csv_table(path: Path) -> None:
    rows = [f"{k},{k / 4},{k % 3},{k % 2 == 0}" for k in range(6)]
    path.write_text("\n".join(["a,b,label,shareable", *rows, ""]))


def _scale(path: Path) -> None:
    numbers = {"mean": [1.0, 2.0], "deviation": [1.0, 0.5]}
    others = {"version": 1, "examples": {"a": 40}, "left_out": {"b": "no answer"}}
    path.write_text(json.dumps({**numbers, **others}))


def _site_data(path: Path) -> Any:
    found = load_site_data(path, spool=path.parent / "spool")
    found.check_labels()
    found.fingerprints(bytes(32))
    return found.x.take(np.arange(found.n_examples))


def _idx(path: Path) -> None:
    values = np.arange(24, dtype=np.uint8)
    path.write_bytes(b"\0\0\x08\x03" + struct.pack(">3I", 2, 3, 4) + values.tobytes())


def _gzip_idx(path: Path) -> None:
    _idx(path)
    path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def _recording(path: Path) -> None:
    mask = RNG.random((8, 3)) < 0.7
    mask[0] = True
    if path.suffix == ".csv":
        path.write_text(
            "\n".join(["a,b,c", *(",".join(map(str, row)) for row in mask.astype(int))])
        )
    elif path.suffix == ".npz":
        np.savez(path, answered=mask)
    else:
        rows = [
            {"round": t, "site": s, "answered": bool(mask[t, k])}
            for t in range(8)
            for k, s in enumerate("abc")
        ]
        pq.write_table(pa.Table.from_pylist(rows), path)


def _play(path: Path) -> Any:
    return recordings.load.__wrapped__(str(path), recordings.digest(str(path)))


def _labels(path: Path) -> None:
    if path.suffix == ".npy":
        np.save(path, np.arange(12) % 3)
    else:
        path.write_text("\n".join(["cat", "dog", "cow"] * 4), encoding="utf-8")


def _sites(path: Path) -> None:
    path.write_text("site,p,c,cat,dog\na,.1,.5,90,4\nb,.4,.2,12,30\nc,.3,0,6,10\n")


def _delays(path: Path) -> None:
    path.write_text("site;examples;spread;away;away-seconds\na;9,5;,5;0;0\nb;2;0;0,3;60\n")


def _peers(path: Path) -> None:
    path.write_text(f'[peers]\na = "{"ab" * 32}"\n"b.c" = "{"cd" * 32}"\n')


def _policy(path: Path) -> None:
    path.write_text(f'min-examples = 5\nshare-with-all = true\napps = ["{"ab" * 32}"]\n')


def _questions(path: Path) -> None:
    path.write_text("2001")


STUDY = """
name = "small"
clients = 3
class_size = 5
rounds = 2
runs = 2
[[figure]]
name = "one"
kind = "curves"
partition = "single-class"
p = [0.3, 0.6]
curves = [{ label = "no sharing" }, { label = "shared", c = 0.4, d = 1 }]
"""


def _run_json(path: Path) -> None:
    study = studies.parse(tomllib.loads(STUDY))
    record = {
        "format": run_record.FORMAT,
        "version": run_record.VERSION,
        "digest": study.digest,
        "study": study.as_dict(),
        "invocations": [{"complete": True, "seconds": 1.0}],
        **provenance.about("x"),
    }
    path.write_text(json.dumps(record))


def _read_run_json(path: Path) -> definition.Study:
    path = path.rename(path.with_name(run_record.NAME))
    return run_record.study_of(path.parent, run_record.read(path.parent))


SITE = {"site": "a", "identity": "ab", "examples": 4, "shareable": 2, "present": True}
FEDERATION = {
    "format": results.FORMAT, "version": 1, "federation": "clinics", "sites": [SITE], "rounds": 1,
    "copies": 2, "examples": 10, "deliveries": 3, "settings": {"x": "y"}, "epoch": 1, "serial": 0,
    "versions": {"numpy": "2"},
}  # fmt: skip
ROUNDS = [{"round": k, "seconds": 1.5, "answered": 1, "sites": 1, "accuracy": 0.5} for k in (0, 1)]
ANSWERS = [
    {"round": 1, "site": "a", "answered": True, "outcome": "answered", "straggler_prob": 0.5}
]


def _page_of(name: str) -> Callable[[Path], Any]:
    """The page of a federation's results whose file of this name is the damaged one."""

    def read(path: Path) -> Any:
        folder = path.parent / "results"
        folder.mkdir(exist_ok=True)
        for other in ("run.json", "rounds.parquet", "answers.parquet"):
            _part_of_results(folder / other)
        path.replace(folder / name)
        return federation.write_page(folder)

    return read


def _part_of_results(path: Path) -> None:
    if path.name.endswith("run.json"):
        path.write_text(json.dumps(FEDERATION))
    else:
        rows = ROUNDS if path.name.endswith("rounds.parquet") else ANSWERS
        pq.write_table(pa.Table.from_pylist(rows), path)


def _write_study(path: Path) -> None:
    path.write_text(STUDY)


OLD = Path(__file__).parents[1] / "federate" / "server" / "unversioned.zip"


def _of_a_server(pattern: str) -> Callable[[Path], None]:
    """A file of a server's state-dir that version 0 wrote; reading it upgrades it as well."""

    def write(path: Path) -> None:
        with zipfile.ZipFile(OLD) as archive:
            (name,) = [n for n in archive.namelist() if fnmatch.fnmatch(n, pattern)][:1]
            path.write_bytes(archive.read(name))

    return write


def _in_state_dir(name: str, read: Callable[[ServerState], Any]) -> Callable[[Path], Any]:
    """What a server reads of its folder when this file in it is the damaged one."""

    def open_and_read(path: Path) -> Any:
        folder = path.parent / "state"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        path.replace(folder / name)
        with contextlib.closing(ServerState(folder)) as state:
            return read(state)

    return open_and_read


def _signed_commit(path: Path) -> None:
    """One in which somebody withdrew, somebody left and somebody is quarantined."""
    owner = Identity(bytes(range(32)))
    names = (owner.name, "bb" * 32, "cc" * 32, "dd" * 32)
    members = tuple(Member(f"s{i}", name, 8, 6, "00" * 32) for i, name in enumerate(names))
    nothing: tuple[tuple[int, ...], ...] = ((),) * 4
    pairs = ((0, 1), (1, 2), (2, 3))
    commit = Commit(
        *("hospitals", 1, 0, "ee" * 32, 0, 2, members, (True,) * 4, pairs, nothing, (0,) * 4)
    )
    withdrawn = Withdrawn((0, 2), 1).signed(owner, commit)
    commit = withdraw(commit, 0, withdrawn).without(3, farewell(owner, "hospitals").hex())
    path.write_bytes(commit.with_quarantine([1]).record)


def _quarantine(path: Path) -> None:
    folder = path.parent / "list"
    folder.mkdir(exist_ok=True)
    listed = Quarantine(folder)
    listed.put("ab" * 32, "a", Offence("it was odd"))
    listed.put("cd" * 32, "b", Offence("it claims much", examples=1 << 30))
    (folder / path.name).replace(path)
    folder.rmdir()


READERS = (
    Reader("placement.npz", _placement, Placement.load, mutations.OF_ARCHIVES),
    Reader("data.npz", _dataset, datasets.load, mutations.OF_ARCHIVES),
    Reader("data.parquet", _table, datasets.load),
    Reader("data.csv", _csv_table, datasets.load),
    Reader("images-idx3-ubyte", _idx, read_idx),
    Reader("images-idx3-ubyte.gz", _gzip_idx, read_idx),
    Reader("site.npz", _site_npz(np.savez), _site_data, mutations.OF_ARCHIVES),
    Reader("packed.npz", _site_npz(np.savez_compressed), _site_data, mutations.OF_ARCHIVES),
    Reader("site.parquet", _table, _site_data),
    Reader("site.csv", _csv_table, _site_data),
    Reader("scale.json", _scale, read_scale),
    Reader("recording.csv", _recording, _play),
    Reader("recording.npz", _recording, _play, mutations.OF_ARCHIVES),
    Reader("recording.parquet", _recording, _play),
    Reader("labels.npy", _labels, read_labels, (*mutations.BYTES, mutations.with_other_header)),
    Reader("labels.txt", _labels, read_labels),
    Reader("sites.csv", _sites, read_sites),
    Reader("delays.csv", _delays, delay_table.read),
    Reader("peers.toml", _peers, read_peers),
    Reader("policy.toml", _policy, lambda path: read_policy(path.parent)),
    Reader("site.toml", _site_file, lambda path: SiteFolder.read(path.parent)),
    Reader("store.backup", _backup, lambda path: archive.read(path, None, None)),
    Reader("questions.json", _questions, lambda path: QuestionNumbers(path.parent)),
    Reader("study.toml", _write_study, studies.load),
    Reader("record.json", _run_json, _read_run_json),
    Reader(
        "checkpoint.npz",
        _of_a_server("server/*/checkpoint.npz"),
        read_checkpoint,
        mutations.OF_ARCHIVES,
    ),
    Reader(
        "exchange.json",
        _of_a_server("server/exchange.json"),
        _in_state_dir("exchange.json", lambda state: state.exchange()),
    ),
    Reader(
        "commit.json",
        _of_a_server("server/commits/*.json"),
        _in_state_dir("commits/00001-00000.json", lambda state: state.commit()),
    ),
    Reader(
        "signed-commit.json",
        _signed_commit,
        _in_state_dir("commits/00001-00000.json", lambda state: state.commit()),
    ),
    Reader("quarantine.json", _quarantine, lambda path: Quarantine(path.parent)),
    Reader(
        "given-up.json",
        lambda path: path.write_text("3"),
        _in_state_dir("given-up.json", lambda state: state.given_up),
    ),
    Reader(
        "format.json",
        lambda path: path.write_text('{"format": "fedcommons.server-state", "version": 1}'),
        _in_state_dir("format.json", lambda state: state.folder),
    ),
    Reader("results-run.json", _part_of_results, _page_of("run.json")),
    Reader("results-rounds.parquet", _part_of_results, _page_of("rounds.parquet")),
    Reader("results-answers.parquet", _part_of_results, _page_of("answers.parquet")),
)
