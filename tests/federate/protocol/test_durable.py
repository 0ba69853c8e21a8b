"""Writes are on the disk when they return."""

import os
from pathlib import Path

from fedcommons.federate.protocol import durable


def test_a_file_is_on_the_disk_before_its_name_and_its_name_before_the_return(
    tmp_path, monkeypatch
):
    done = []
    fsync, replace_file = os.fsync, Path.replace

    def note_sync(descriptor):
        fsync(descriptor)
        done.append(("sync", Path(f"/proc/self/fd/{descriptor}").resolve().name))

    def note_replace(path, target):
        done.append(("replace", target.name))
        return replace_file(path, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_replace)
    durable.write_file(tmp_path / "state.json", b"{}", "server.state")
    assert done == [
        ("sync", ".state.json.part"),
        ("replace", "state.json"),
        ("sync", tmp_path.name),
    ]
    done.clear()
    durable.remove_file(tmp_path / "state.json", "server.state")
    durable.make_folder(tmp_path / "commits")
    assert done == [("sync", tmp_path.name)] * 2
