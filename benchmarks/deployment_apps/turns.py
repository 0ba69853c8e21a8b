"""Two runs in one deployment take turns, round by round, and write down how long each took."""

import json
import random
import time
from pathlib import Path

LONGEST_WAIT = 600


class Turns:
    """One run's side of it. `folder` is shared; the file `turn` in it names who is on."""

    def __init__(self, folder: str, name: str, other: str) -> None:
        self.folder, self.name, self.other = Path(folder), name, other
        self.round = 0

    def wait(self) -> None:
        """Until it is this run's turn; then as long again as a SuperNode sleeps, at random.

        SuperNodes look for messages every 3 s: without the pause, how long one run's round takes
        would depend on when the other's ended.
        """
        end = time.monotonic() + LONGEST_WAIT
        while (self.folder / "turn").read_text() != self.name:
            if time.monotonic() > end:
                raise TimeoutError(f"{self.other} never gave {self.name} its turn")
            time.sleep(0.05)
        self.round += 1
        time.sleep(random.Random(f"{self.name} {self.round}").uniform(0, 3))  # noqa: S311
        self.start = time.monotonic()

    def over(self, answered: int) -> None:
        """The round is over: it is the other's turn."""
        seconds = time.monotonic() - self.start
        with (self.folder / f"{self.name}.jsonl").open("a") as file:
            file.write(json.dumps({"seconds": seconds, "answered": answered}) + "\n")
        part = self.folder / f"turn-{self.name}"
        part.write_text(self.other)
        part.replace(self.folder / "turn")
