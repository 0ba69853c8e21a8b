"""Asking sites and waiting for them, never for ever."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

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

    def pull(self) -> list[tuple[Node, Reply]]:
        """The replies that came since, by the node that was asked."""
        replies = self.link.pull(list(self.waiting)) if self.waiting else ()
        found = [(self.waiting.pop(ticket, None), reply) for ticket, reply in replies]
        return [(node, reply) for node, reply in found if node is not None]


def ask(
    link: Link,
    kind: Kind,
    questions: Mapping[Node, Question],
    *,
    seconds: float,
    on_reply: Callable[[Node, Reply, float], None] | None = None,
    enough: Callable[[float], bool] | None = None,
) -> dict[Node, Reply]:
    """Ask each node its question and collect what arrives in time, by node.

    A reply is matched with the question that it answers, so a late one to an earlier question is
    never looked at. `on_reply` hears of each reply and the seconds it took. `enough`, asked with
    the seconds that have passed, may end the waiting sooner.
    """
    start = time.monotonic()
    open_questions = OpenQuestions(link, kind)
    open_questions.push(questions, seconds=seconds)
    replies: dict[Node, Reply] = {}
    while open_questions.waiting:
        for node, reply in open_questions.pull():
            replies[node] = reply
            if on_reply:
                on_reply(node, reply, time.monotonic() - start)
        passed = time.monotonic() - start
        if not open_questions.waiting or passed >= seconds or (enough and enough(passed)):
            break
        time.sleep(min(POLL_SECONDS, seconds - passed))
    return replies
