"""Asking sites and waiting for them, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from fedcommons.federate.server.link import Kind, Link, Node, Question, Reply, Ticket

POLL_SECONDS = 0.3  # Flower's own send_and_receive polls every 3 s


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

    def pull(self) -> Iterator[tuple[Node, Reply]]:
        """The replies that came since, by the node that was asked; one after another."""
        for ticket, reply in self.link.pull(list(self.waiting)) if self.waiting else ():
            node = self.waiting.pop(ticket, None)
            if node is not None:
                yield node, reply


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

    A reply is matched with the question that it answers, so a late one to an earlier question is
    never looked at. `on_reply` hears of each reply and the seconds it took, and may ask the same
    node something else. Replies are not kept: they may be as large as the model. `enough`, asked
    with the seconds that have passed, may end the waiting sooner.
    """
    start = time.monotonic()
    open_questions = OpenQuestions(link, kind)
    open_questions.push(questions, seconds=seconds)
    silent = set(questions)
    while open_questions.waiting:
        again: dict[Node, Question] = {}
        for node, reply in open_questions.pull():
            question = on_reply(node, reply, time.monotonic() - start)
            if question is None:
                silent.discard(node)
            else:
                again[node] = question
        passed = time.monotonic() - start
        if again and passed < seconds:
            open_questions.push(again, seconds=seconds - passed)
            continue
        if not open_questions.waiting or passed >= seconds or (enough and enough(passed)):
            break
        time.sleep(min(POLL_SECONDS, seconds - passed))
    return silent
