"""Softmax regression under a clock as a plain loop over ticks, clients and examples."""

from __future__ import annotations

import math

import numpy as np

from fedcommons import work
from fedcommons.batches import batches
from fedcommons.reliability import Reliability
from fedcommons.simulate import draws, timelines
from fedcommons.step_control import sketch
from fedcommons.streams import stream
from tests.reference import clock, loops


def train(dataset, curve, timing, *, n_clients, class_size, n_points, seed, run):
    """What is recorded at n_points + 1 times, and when the target was reached."""
    N = n_clients
    data = draws.training_set(dataset, class_size, seed=seed, run=run)
    shared = draws.share(curve, data.labels, N, seed=seed, run=run)
    shares = draws.shares(curve, shared.placement, data.products).toarray()
    x, M = data.inputs.astype(np.float64), len(data.labels)
    test = np.c_[dataset.inputs("test", dtype=np.float64), np.ones(len(dataset.y_test))]
    beta = np.zeros((x.shape[1] + 1, dataset.n_classes))
    per_example, doing = timing.per_example(beta.size), work.parse(curve.work)
    holds = [np.flatnonzero(shares[i]) for i in range(N)]
    held = np.array([len(h) for h in holds])

    law = timing.law(N, per_example, seed=seed, run=run)
    policy = timelines.policy_of(curve, law)
    sizes = held
    if doing.kind == "mini":
        sizes = [min(n, doing.size) for n in held]
    elif doing.kind != "full":
        T = timelines.time_to_fit(curve, law)
        spent = law.mean(np.full(N, per_example)) - law.mean(np.zeros(N))
        sizes = [min(n, max(1, int((T - law.links()[i]) / spent[i]))) for i, n in enumerate(held)]
    chunks = timelines.chunks_of(doing, held, np.array(sizes), seed=seed, run=run)
    job = np.array([held[i] / len(chunks[i]) if chunks else sizes[i] for i in range(N)])

    begin = 0.0
    jobs_before = 0
    if curve.warm:
        took = law.seconds(np.arange(N), np.zeros(N, int), held * per_example)
        begin, jobs_before = float(took.max()), 1

    def seconds(i, k):
        args = np.array([i]), np.array([k + jobs_before]), np.array([job[i] * per_example])
        return float(law.seconds(*args)[0])

    ticks = clock.ticks(
        seconds, [[] for _ in range(N)], wait=policy.wait, late=policy.late, now=begin,
        fastest=policy.fastest, deadline=policy.deadline, weight=held.tolist(),
        until=timing.seconds, known=[[t] for t in took] if curve.warm else None,
    )  # fmt: skip

    def gradient(i, places):
        f = np.zeros(beta.size)
        for j in holds[i][places]:
            f += shares[i, j] * loops.softmax_gradient(x[j], data.labels[j], beta)
        return f

    def right():
        return int(((test @ beta).argmax(axis=1) == dataset.y_test).sum())

    parts = chunks or [[np.arange(n)] for n in held]
    last = [[np.zeros(beta.size) for _ in parts[i]] for i in range(N)]  # r of every chunk
    if curve.warm:
        last = [[gradient(i, part) for part in parts[i]] for i in range(N)]
    anchors = {(i, c): beta for i in range(N) for c in range(len(parts[i])) if curve.warm}
    longest, W = np.full(N, np.nan), shares.sum(axis=1)
    heard = np.full(N, curve.warm)
    pending, asked_so_far = {}, np.zeros(N, int)
    known = Reliability.start(N)
    looks, moments, ends = [(0.0, right())], [], []
    last_look = 0.0
    for t, tick in enumerate(ticks):
        p = known.straggler_prob
        fresh = {}
        for i in sorted(tick["asked"]):
            k = int(asked_so_far[i])
            asked_so_far[i] += 1
            if chunks:
                if doing.kind == "chunk":
                    c = k % len(chunks[i])
                else:
                    u = stream(seed, "chunk of a job", run, i).random(k + 1)[k]
                    c = int(u * len(chunks[i]))
                raw = gradient(i, chunks[i][c])
                answer = (c, raw, doing.scale(held[i], len(chunks[i][c]), len(chunks[i])))
            else:
                rng = stream(seed, "batches", run, k, i)
                places = next(
                    batches(held[i], None if doing.kind == "full" else sizes[i], 1, rng=rng)
                )
                answer = (0, gradient(i, places) * held[i] / len(places), 1.0)
            answer = (*answer, beta.copy())
            if i in tick["on_time"]:
                fresh[i] = answer
            else:
                pending[i] = answer
        h = [sum(last[i]) for i in range(N)]

        def whole(i, answer, h=h):
            c, raw, scale = answer[:3]
            return h[i] + scale * (raw - last[i][c])

        estimate, back = np.zeros(beta.size), np.zeros_like(beta)
        late = {i: pending[i] for i in tick["late"]}
        come = len(fresh) + len(late)
        if curve.estimator == "coded_sum":
            for i, a in fresh.items():
                estimate += (a[1] if not chunks else whole(i, a)) / (1 - p[i])
        elif curve.estimator == "responder_average":
            estimate = sum(a[1] for a in fresh.values()) * N / max(1, len(fresh)) + 0 * estimate
        elif curve.estimator == "memory":
            estimate = sum(h) + sum((whole(i, a) - h[i]) / (1 - p[i]) for i, a in fresh.items())
        elif curve.estimator == "latest":
            now = {**fresh, **late}
            estimate = sum(whole(i, now[i]) if i in now else h[i] for i in range(N))
        elif curve.estimator == "blended":
            here = np.isin(np.arange(N), list(fresh))
            f = np.array([fresh[i][1] if i in fresh else 0 * h[i] for i in range(N)])
            past = np.array([late[i][1] if i in late else h[i] for i in range(N)])
            heard |= np.isin(np.arange(N), list(late))
            estimate = loops.blended(f, past, W, here, heard)
            heard |= here
        elif curve.estimator in ("fedbuff", "fedasync"):
            for i, a in {**fresh, **late}.items():
                age = t - tick["late"][i] if i in late else 0
                s = (1 + age) ** -0.5
                estimate = estimate + N * s / come * a[1]
                if i in late and curve.estimator == "fedasync":
                    back += s / come * (beta - a[3])
        for i, (c, raw, _, model) in {**fresh, **late}.items():
            if curve.step_control and (i, c) in anchors:
                far = sketch(model.ravel()) - sketch(anchors[i, c].ravel())
                n_i = sum(shares[i, holds[i][parts[i][c]]])
                if far.any():
                    change = np.linalg.norm(raw - last[i][c])
                    now = change / (n_i * np.linalg.norm(far))
                    longest[i] = now if np.isnan(longest[i]) else max(0.97 * longest[i], now)
            anchors[i, c] = model
            last[i][c] = raw
        moments.append(float(estimate @ estimate))
        eta = curve.learning_rate * curve.decay ** tick["begin"]
        rate = eta * curve.server_rate
        if curve.step_control and (known_of := np.flatnonzero(np.isfinite(longest))).size:
            bounded = longest[known_of]
            if len(bounded) > 2:
                others = [np.median(np.delete(bounded, k)) for k in range(len(bounded))]
                bounded = np.minimum(bounded, 4 * np.array(others))
            rate = min(rate, W[known_of].sum() / (W[known_of] @ bounded))
        step = rate / M * estimate.reshape(beta.shape)
        beta = beta - step - curve.server_rate * back
        known = known.observe(
            [i in tick["on_time"] for i in range(N)], [i in tick["asked"] for i in range(N)]
        )
        ends.append(tick["end"])
        if tick["end"] >= last_look * timelines.LOOKS_APART:
            looks.append((tick["end"], right()))
            last_look = tick["end"]
    found = {"correct": [], "second_moment": [], "ticks": [], "looks": looks}
    for g in np.linspace(0, timing.seconds, n_points + 1):
        found["correct"].append([n for when, n in looks if when <= g][-1])
        done = sum(end <= g for end in ends)
        found["ticks"].append(done)
        found["second_moment"].append(moments[min(done, len(moments) - 1)])
    enough = (timing.target or 0) * len(dataset.y_test)
    found["reached"] = next((when for when, n in looks if n >= enough), math.inf)
    return found
