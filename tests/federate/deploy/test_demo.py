"""The demo runs to its end, and ends when it is asked to; it leaves nothing but its results."""

import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from rich.console import Console

from fedcommons.cli.federate_demo import _Screen
from fedcommons.errors import ResultsError
from fedcommons.federate.deploy.demo import MARK, check_out
from tests.federate.deploy.leftovers import is_listening, processes_that_know

FEDCOMMONS = Path(sys.executable).with_name("fedcommons")


class Demo:
    """The command in a process group of its own, with a folder for all its temporary files."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.out, self.temporary = folder / "results" / "demo", folder / "temporary"
        self.temporary.mkdir()
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [FEDCOMMONS, "federate", "demo", "--out", self.out, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary)},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        self.lines.extend(iter(self._process.stdout.readline, ""))

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + 600  # on a busy machine
        while not any(text in line for line in self.lines):
            assert self._process.poll() is None, self.lines
            assert time.monotonic() < end, self.lines
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, seconds: float) -> int:
        """The exit code; whatever happens, the process has ended."""
        try:
            return self._process.wait(seconds)
        finally:
            self._process.kill()
            self._reader.join(10)
            self._process.stdout.close()

    def assert_nothing_is_left(self) -> None:
        assert processes_that_know(self.temporary) == []
        assert list(self.temporary.iterdir()) == []
        for port in re.findall(r"127\.0\.0\.1:(\d+)", "".join(self.lines)):
            assert not is_listening(int(port))


GONE = re.compile("late|not connected")


def watched(demo):
    """The words on the live page, once a site is seen to be late or gone."""
    (state,) = demo.temporary.glob("fedcommons-*/state")
    watch = subprocess.Popen(
        [FEDCOMMONS, "federate", "watch", state], stdout=subprocess.PIPE, text=True
    )
    try:
        address = watch.stdout.readline().removeprefix("Open ").strip()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 390, "height": 900})
            page.goto(address)
            row = page.locator("#sites td.bad", has_text=GONE).first
            row.wait_for(timeout=600_000)
            return page.locator("main").inner_text()
    finally:
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 130
        watch.stdout.close()


def test_sites_leave_die_and_return_and_only_the_results_are_left(tmp_path):
    demo, seen = Demo(tmp_path), ""
    try:
        if shutil.which("chromium"):
            demo.wait_for("round 1/10")
            seen = watched(demo)
    except BaseException:
        demo.signal(signal.SIGINT)
        demo.end(300)
        raise
    assert demo.end(1200) == 0, demo.lines
    if seen:
        assert all(f"site-{k}\n" in seen for k in range(5)), seen
        assert re.search(r"\n[1-9]\d* of [1-9]", seen), seen
    text = "".join(demo.lines)
    _, _, end = text.partition("What happened:")
    said = " ".join(end.split())
    for event in (
        "site-1 is stopped",
        "site-3 is killed",
        "site-1 is started",
        "site-4 is stopped",
    ):
        assert re.search(rf"  after round \d+: {event}", end), end
    assert re.search(r"coding reached 0\.\d+, averaging who answered would have reached 0\.", said)
    assert re.search(r"round \d+/10: accuracy 0\.", text)
    assert "answered site-0 site-1 site-2 site-3 site-4" in text
    assert "site-1 is stopped (SIGTERM)" in text
    assert re.search(r"round [2-4]/10: .*missing (site-\d \(.*?\), )*site-1 \(", text)
    assert "site-1 is started again, under the same id" in text
    killed, _, after = text.partition("site-3 is killed (SIGKILL)")
    assert "site-3" in killed
    back = re.search(r"site-3 is back after (\d+) s, having been refused (\d+) times", after)
    assert back, text
    assert int(back[2]) > 0  # Flower takes it for alive at first; its supervisor goes on
    missing = re.findall(r"round (\d+)/10: .*missing ([^;]*?) *;", text)
    assert any("site-3" in sites for _, sites in missing), missing
    assert f"Open {demo.out / 'report.html'}" in text
    assert f"fedcommons report {demo.out}" in text
    record = json.loads((demo.out / "run.json").read_text())
    assert (record["format"], record["rounds"], len(record["sites"])) == (
        "fedcommons.federation",
        10,
        5,
    )
    assert (demo.out / "report.html").stat().st_size > 1000
    assert list(demo.out.parent.iterdir()) == [demo.out]
    demo.assert_nothing_is_left()


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "shares a fifth of them"),
        (signal.SIGHUP, "SuperLink is up"),
    ],
)
def test_being_interrupted_ends_everything(tmp_path, number, moment):
    demo = Demo(tmp_path)
    demo.wait_for(moment)
    demo.signal(number)
    assert demo.end(300) == 130, demo.lines
    assert "interrupted" in demo.lines[-1]
    assert not demo.out.exists()
    demo.assert_nothing_is_left()


def test_on_a_terminal_a_table_shows_who_answered():
    screen = _Screen(rounds=10)
    sites = [
        {"site": f"site-{k}", "answered": k != 3, "outcome": "too late", "straggler_prob": k / 10}
        for k in range(5)
    ]
    screen.say("site-3 is killed (SIGKILL)")
    at_sites = {"pooled": {"accuracy": 0.613}, "by_site": {}, "left_out": {}}
    screen.on_round({"round": 0, "metrics": {}, "sites": []})
    screen.on_round({"round": 1, "evaluation": at_sites, "seconds": 6.4, "sites": sites})
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(screen._picture())
    (row,) = [line for line in console.export_text().splitlines() if "1/10" in line]
    assert row.split("│")[1:-1] == [
        "  1/10 ", "    0.613 ", "     6.4 ",
        " ● 0.00 ", " ● 0.10 ", " ● 0.20 ", " ○ 0.30 ", " ● 0.40 ",
    ]  # fmt: skip


def test_a_folder_of_something_else_is_not_touched(tmp_path):
    (tmp_path / "results" / "demo").mkdir(parents=True)
    (tmp_path / "results" / "demo" / "thesis.tex").touch()
    demo = Demo(tmp_path)
    assert demo.end(300) == 6
    assert "out must be new, empty or an earlier demo's folder" in demo.lines[-1]
    demo.assert_nothing_is_left()


def test_the_results_of_a_real_training_are_not_touched(tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text('{"format": "fedcommons.federation"}')
    with pytest.raises(ResultsError, match="an earlier demo's folder"):
        check_out(out)
    (out / MARK).touch()
    check_out(out)
    assert sorted(path.name for path in out.iterdir()) == [MARK, "run.json"]


@pytest.mark.parametrize("out", ["/proc/none/demo", "{tmp}/file", "{tmp}/file/demo"])
def test_a_folder_that_cannot_be_written_is_named_before_anything_starts(tmp_path, out):
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError, match="out cannot be written"):
        check_out(Path(out.replace("{tmp}", str(tmp_path))))


@pytest.mark.parametrize("arguments", [("--rounds", "0")])
def test_arguments_are_checked(tmp_path, arguments):
    demo = Demo(tmp_path, *arguments)
    assert demo.end(300) == 2
    assert demo.lines[-1].startswith("fedcommons: ")
