"""A federation in which holders correct what is remembered of absent owners, as a plain loop."""

from __future__ import annotations

import numpy as np

MOST_CHUNKS = 64


class Site:
    """One site: its chunks with their anchors, the models it was sent, what it computed of others.

    `gradient(j, params)` is the gradient of example j.
    """

    def __init__(self, own, received, pace, deadline, n_params, gradient):
        self.own, self.received, self.pace = own, received, pace  # received: by owner
        self.fit, self.gradient, self.P = deadline * 0.5 / pace, gradient, n_params
        self.number = self.turn = 0
        self.knows_pace = False
        self.r, self.anchors = [], []
        self.models, self.stand_ins = {}, {}

    def examples(self, chunk):
        return self.own[chunk :: self.number]

    def cut(self, beside):
        number, fit = 1, self.fit if self.knows_pace else 0
        while 2 * number <= min(MOST_CHUNKS, len(self.own)):
            spare = 1 if number >= self.number else 0.8
            if -(-(len(self.own) + beside) // number) <= fit * spare:
                break
            number *= 2
        if not self.number:
            self.number, self.r = number, [np.zeros(self.P) for _ in range(number)]
            self.anchors = [{"": len(self.examples(k))} for k in range(number)]
        while self.number > number:
            half = self.number // 2
            self.r = [self.r[k] + self.r[k + half] for k in range(half)]
            self.anchors = [added(self.anchors[k], self.anchors[k + half]) for k in range(half)]
            self.number, self.turn = half, self.turn % half
        while self.number < number:
            n, r, anchors = self.number, [], []
            for k in range(2 * n):
                share = len(self.own[k :: 2 * n]) / len(self.own[k % n :: n])
                r.append(share * self.r[k % n])
                anchors.append({x: share * m for x, m in self.anchors[k % n].items()})
            self.r, self.anchors, self.number = r, anchors, 2 * n

    def work_on(self, chunk, params):
        some = self.examples(chunk)
        self.r[chunk] = sum(self.gradient(j, params) for j in some)
        self.anchors[chunk] = {params.tobytes(): len(some)}
        self.turn, self.knows_pace = (chunk + 1) % self.number, True

    def answer(self, params, absent, counts, question):
        """(h, anchors, correction): `absent` anchors by owner, `counts` how many it holds where."""
        self.models[params.tobytes()] = params
        of = {i: anchors for i, anchors in absent.items() if self.received.get(i)}
        for i, anchors in of.items():
            if self.stand_ins.get(i, (None,))[0] != anchors:
                self.stand_ins[i] = (anchors, {}, np.zeros(self.P), None, 0)
        of = {i: x for i, x in of.items() if self.stand_ins[i][1] or "" in x or self.new(i)}
        beside = sum(len(self.received[i]) * (1 + len(self.new(i))) for i in of)
        self.cut(beside)
        self.work_on(self.turn, params)
        left = -(-beside // self.number)
        for i in sorted(of, key=lambda i: (self.stand_ins[i][4], i)):
            if left > 0:
                left -= self.refresh(i, params, left, question)
        total = np.zeros(self.P)
        for i in of:
            _, covered, mean, now, at = self.stand_ins[i]
            if at:
                total += sum(covered.values()) / counts[i] * (now - mean)
        return sum(self.r), added(*self.anchors), total

    def new(self, owner):
        anchors, covered, *_ = self.stand_ins[owner]
        return [x for x in anchors if x not in covered and x in self.models]

    def refresh(self, owner, params, left, question):
        anchors, covered, mean, _, _ = self.stand_ins[owner]
        mine = self.received[owner]
        now, done = sum(self.gradient(j, params) for j in mine), len(mine)
        fresh, covered = self.new(owner), dict(covered)
        if not covered and "" in anchors:
            covered[""] = anchors[""]
        for x in fresh:
            if covered and done >= left:
                break
            at = sum(self.gradient(j, self.models[x]) for j in mine)
            before = sum(covered.values())
            mean = (before * mean + anchors[x] * at) / (before + anchors[x])
            covered[x], done = anchors[x], done + len(mine)
        self.stand_ins[owner] = (anchors, covered, mean, now, question)
        return done


def added(*anchors):
    found = {}
    for one in anchors:
        for x, n in one.items():
            found[x] = found.get(x, 0) + n
    return found
