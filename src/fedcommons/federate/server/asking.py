"""Asking sites and waiting for them, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping

from fedcommons.federate.server.link import Kind, Link, Node, Question, Reply, Ticket

POLL_SECONDS = 0.3  # Flower's own send_and_receive polls every 3 s

Heard = tuple[Node, Reply, float]
"""A reply, the node that was asked, and the seconds that it took."""


class OpenQuestions:
    """Questions of one kind that were sent and not answered yet."""

    def __init__(self, link: Link, kind: Kind) -> None:
        self.link, self.kind = link, kind
        self.waiting: dict[Ticket, Node] = {}

    def push(self, questions: Mapping[Node, Question], *, seconds: float) -> list[Node]:
        """Send each node its question; the nodes to which it went."""
        sent = self.link.push(self.kind, questions, seconds=seconds) if questions else {}
        self.waiting |= sent
        return list(sent.values())

    def pull(self, among: Collection[Node] | None = None) -> Iterator[tuple[Node, Reply]]:
        """The replies that came since, by the node that was asked; one after another.

        Only those `among` these nodes are looked for, if some are named.
        """
        tickets = [t for t, node in self.waiting.items() if among is None or node in among]
        for ticket, reply in self.link.pull(tickets) if tickets else ():
            node = self.waiting.pop(ticket, None)
            if node is not None:
                yield node, reply


class Asking:
    """Each node's question, and what arrives in time.

    A reply is matched with the question that it answers, so a late one to an earlier question is
    never taken for one of these. Replies are not kept: they may be as large as the model. `enough`,
    asked with the seconds that have passed, may end the waiting sooner.

    Replies may be of use for longer than they are waited for (`lasting`, in seconds). Then only
    nodes that are connected are looked at, since looking for the reply of another one loses it; and
    `beside` looks for what else comes from these meanwhile, and says whether anything did. Where
    nobody is asked, since all owe an answer to something else, that is waited for (`for_others`).

    Attributes:
        silent: the nodes that have not replied.
    """

    def __init__(
        self,
        link: Link,
        kind: Kind,
        questions: Mapping[Node, Question],
        *,
        seconds: float,
        enough: Callable[[float], bool] | None = None,
        lasting: float | None = None,
        beside: Callable[[Collection[Node]], bool] | None = None,
        for_others: bool = False,
    ) -> None:
        self.seconds, self._enough = seconds, enough
        self._lasting, self._beside, self._for_others = lasting, beside, for_others
        self._start = time.monotonic()
        self._open = OpenQuestions(link, kind)
        self._again: dict[Node, Question] = {}
        self._is_over = False
        self.silent = set(questions)
        self.asked = set(self._open.push(questions, seconds=lasting or seconds))

    @property
    def lasts(self) -> bool:
        """Whether replies are of use after the time is over."""
        return self._lasting is not None

    @property
    def left(self) -> dict[Ticket, Node]:
        """The questions that are out and were not answered in time."""
        return dict(self._open.waiting)

    def again(self, node: Node, question: Question) -> None:
        """Ask a node that has replied something else, in the time that is left."""
        self._again[node] = question
        self.silent.add(node)

    def replies(self) -> Iterator[Heard]:
        """What arrives until the time is over, as it arrives; it can be gone on with later."""
        came = not self._for_others or bool(self.asked)
        while (self._open.waiting or self._again or not came) and not self._is_over:
            connected = None if self._lasting is None else set(self._open.link.nodes())
            for node, reply in self._open.pull(connected):
                self.silent.discard(node)
                yield node, reply, time.monotonic() - self._start
            if self._beside is not None:
                came |= self._beside(connected or ())
            passed = time.monotonic() - self._start
            if self._again and passed < self.seconds:
                self._open.push(self._again, seconds=self._lasting or self.seconds - passed)
                self._again = {}
                continue
            if passed >= self.seconds or (self._enough is not None and self._enough(passed)):
                self._is_over = True
            elif self._open.waiting or not came:
                time.sleep(min(POLL_SECONDS, self.seconds - passed))


def ask(
    link: Link,
    kind: Kind,
    questions: Mapping[Node, Question],
    *,
    seconds: float,
    on_reply: Callable[[Node, Reply, float], Question | None],
    enough: Callable[[float], bool] | None = None,
) -> set[Node]:
    """Ask each node its question, and hand what arrives in time to `on_reply`; who did not reply.

    `on_reply` hears of each reply and the seconds it took, and may ask the same node something
    else.
    """
    asking = Asking(link, kind, questions, seconds=seconds, enough=enough)
    for node, reply, took in asking.replies():
        if (question := on_reply(node, reply, took)) is not None:
            asking.again(node, question)
    return asking.silent
