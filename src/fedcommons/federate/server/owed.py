"""Answers that sites owe: the questions of earlier rounds that are open, and what comes of them.

A site that owes an answer is not asked again: it works on one question at a time, and asking more
only makes it later. Its answer counts when it comes. Open questions are in the checkpoint, so a
server that is started again asks for the answers that sites have kept.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from fedcommons.federate.protocol.refusals import CommitUnknown
from fedcommons.federate.server.asking import Asking
from fedcommons.federate.server.link import UNAVAILABLE, Link, Node, Question, Reply, Ticket
from fedcommons.federate.server.meeting import Meeting
from fedcommons.federate.server.open_question import OpenQuestion

LASTING = 12 * 3600.0  # seconds that an answer may take, if the site stays connected
LOST = "its answer is lost"


class Owed:
    """The open questions of a training, by the site's identity, and the replies to them.

    `open` is the training's own, and is saved with it.
    """

    def __init__(
        self, meeting: Meeting, link: Link, open_questions: dict[str, OpenQuestion]
    ) -> None:
        self.open = open_questions
        self._meeting, self._link = meeting, link
        self._waiting: dict[Ticket, tuple[Node, OpenQuestion]] = {}
        self._left: set[Node] = set()  # those that were away since they were asked

    def take_over(self, asking: Asking, questions: Mapping[Node, OpenQuestion]) -> None:
        """What was not answered in time is owed from now on."""
        for ticket, node in asking.left.items():
            self._waiting[ticket] = node, questions[node]
            self.open[self._meeting.identity_of(node)] = questions[node]

    def replies(self, connected: Collection[Node]) -> Iterator[tuple[str, OpenQuestion, Reply]]:
        """What came since: whose, to which question. That question is not open any more.

        A node that left and is back may have lost the question with its process, or what it replied
        may be lost: its site is asked again for the answer that it kept (`ask_for_kept`).
        """
        self._left |= {node for node, _ in self._waiting.values()} - set(connected)
        tickets = [ticket for ticket, (node, _) in self._waiting.items() if node in connected]
        for ticket, reply in self._link.pull(tickets) if tickets else ():
            node, question = self._waiting.pop(ticket)
            identity = self._meeting.identity_of(node)
            if reply.failure == UNAVAILABLE:
                self._left.add(node)
            elif self.open.get(identity) == question:  # else it came twice
                del self.open[identity]
                if reply.failure == CommitUnknown.__name__:
                    self._meeting.commits.pop(identity, None)
                yield identity, question, reply

    def ask_for_kept(self, made: Callable[[str, OpenQuestion], Question]) -> None:
        """Ask sites for answers that would not come any more: of another run, of a node that left.

        A site that still works on it replies when it is done, by then with the answer.
        """
        waited_for = {node for node, _ in self._waiting.values()} - self._left
        for identity, question in self.open.items():
            node = self._meeting.node(identity)
            if node is not None and node not in waited_for:
                asked = {node: made(identity, question)}
                sent = self._link.push("train", asked, seconds=LASTING)
                self._waiting |= dict.fromkeys(sent, (node, question))
                self._left.discard(node)
