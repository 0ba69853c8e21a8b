// What one way to share brings: what fedcommons.plan.outcome computes, step by step, from what is
// embedded in the page. A test compares the two. It follows page_charts.js.

const D = JSON.parse(document.getElementById("decision").textContent);
const N = D.names.length;
const L = D.norm2.length;
const sum = (values) => values.reduce((a, b) => a + b, 0);
const clip01 = (value) => Math.max(0, Math.min(1, value));
const NEVER = 1 - 1e-9;

// Theory

/** E|sum_j w_j g_j|^2 from sums over classes of E w, (E w)^2 and E w^2. */
function square(weights, squares, own) {
  let total = 0;
  for (let a = 0; a < L; a++) {
    for (let b = 0; b < L; b++) total += weights[a] * D.products[a][b] * weights[b];
    total += own[a] * D.norm2[a] - squares[a] * D.products[a][a];
  }
  return total;
}

const perClass = (f) => Array.from({ length: L }, (_, l) => f(l));
const rounding = (offer) => { const f = offer - Math.floor(offer); return f * (1 - f); };

/** E|f_i|^2 of each site's answer under the equal split. */
function answers(counts, offered, d) {
  const own = 1 / (d + 1);
  const theirs = d ? own : 0;
  const q = d ? d / (N - 1) : 0;
  const all = perClass((l) => sum(offered.map((row) => row[l])));
  const whole = perClass((l) => sum(offered.map((row) => row[l] - rounding(row[l]))));
  return counts.map((count, i) => {
    const offer = offered[i];
    const others = (l) => all[l] - offer[l];
    const weights = perClass((l) => count[l] - offer[l] + own * offer[l] + q * theirs * others(l));
    const squares = perClass((l) => count[l] - offer[l] + own ** 2 * offer[l]
      - (1 - own) ** 2 * rounding(offer[l])
      + (q * theirs) ** 2 * (whole[l] - (offer[l] - rounding(offer[l]))));
    const each = perClass((l) => count[l] - offer[l] + own ** 2 * offer[l]
      + q * theirs ** 2 * others(l));
    return square(weights, squares, each);
  });
}

/** How much of the error of its own part goes away while a site is absent. */
function gains(counts, offered, d, p) {
  if (!d) return counts.map(() => 0);
  const [q, kept] = [d / (N - 1), 1 / (d + 1)];
  const r = p.map((value) => { const at = Math.min(value, NEVER); return at / (1 - at); });
  const risk = sum(r);
  return counts.map((count, i) => {
    const alone = square(count, count, count);
    if (!(alone > 0)) return 0;
    const offer = offered[i];
    const lost = perClass((l) => count[l] - (1 - kept) * offer[l]);
    const squares = perClass((l) => count[l] - (1 - kept ** 2) * offer[l]);
    const missing = square(lost,
      perClass((l) => squares[l] - (1 - kept) ** 2 * rounding(offer[l])), squares);
    const ofOne = square(perClass((l) => kept * q * offer[l]),
      perClass((l) => (kept * q) ** 2 * (offer[l] - rounding(offer[l]))),
      perClass((l) => kept ** 2 * q * offer[l]));
    return 1 - (missing + (risk - r[i]) * ofOne) / alone;
  });
}

/** Theorem 1 for one class, with offers that are rounded at random; null without examples. */
function distance(count, offer, d) {
  const q = d && N > 1 ? d / (N - 1) : 0;
  const down = offer.map((value) => Math.floor(value + 1e-9));
  const chance = new Float64Array(N + 1);
  const added = new Float64Array(N + 1);
  chance[0] = 1;
  for (let i = 0; i < N; i++) {
    const up = Math.max(offer[i] - down[i], 0);
    const more = q ** 2 * (2 * down[i] + 1) - 2 * q * count[i];
    for (let k = N; k > 0; k--) {
      added[k] = (1 - up) * added[k] + up * (added[k - 1] + more * chance[k - 1]);
      chance[k] = (1 - up) * chance[k] + up * chance[k - 1];
    }
    added[0] *= 1 - up;
    chance[0] *= 1 - up;
  }
  const K = sum(count);
  if (!K) return null;
  const apart = sum(count.map((value, i) => (value - q * down[i]) ** 2));
  let total = 0;
  for (let k = 0; k <= N; k++) {
    const n = sum(down) + k;
    const squares = apart + 2 * q * n * (K - q * n) + N * (q * n) ** 2;
    total += (chance[k] * (squares + d * n * (1 - q)) + added[k]) / (K + d * n) ** 2;
  }
  return total - 1 / N;
}

/** Rounds until the target at this noise. */
function roundsAt(noise) {
  const { noise: x, rounds: y } = D.course;
  const last = x.length - 1;
  if (noise <= x[0] || !last) return y[0];
  if (noise >= x[last]) {
    return y[last] + (noise - x[last]) * (y[last] - y[last - 1]) / (x[last] - x[last - 1]);
  }
  const k = x.findIndex((value) => value > noise);
  return y[k - 1] + (noise - x[k - 1]) * (y[k] - y[k - 1]) / (x[k] - x[k - 1]);
}

// Time

/** How likely a site answers within so long, by the quantiles of its seconds. */
function onTime(quantiles, seconds) {
  const { chances } = D.timing;
  const last = chances.length - 1;
  if (seconds < quantiles[0]) return 0;
  if (seconds >= quantiles[last]) return chances[last];
  let [low, high] = [0, last];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (quantiles[middle] <= seconds) low = middle; else high = middle;
  }
  const width = quantiles[high] - quantiles[low];
  const part = width > 0 ? (seconds - quantiles[low]) / width : 1;
  return chances[low] + part * (chances[high] - chances[low]);
}

const filled = (i, load) => {
  const room = D.timing.most[i] - D.timing.own[i];
  return room > 0 ? (load - D.timing.own[i]) / room : 0;
};
const jobQuantiles = (load) => load.map((value, i) => {
  const at = filled(i, value);
  return D.timing.first[i].map((x, u) => x + (D.timing.last[i][u] - x) * at);
});
const meanSeconds = (i, load) =>
  D.timing.mean[0][i] + (D.timing.mean[1][i] - D.timing.mean[0][i]) * filled(i, load);

function roundSeconds(jobs, deadline) {
  const { away, steps } = D.timing;
  const begin = Math.min(greatest(jobs.map((job, i) => (away[i] === 0 ? job[0] : 0))), deadline);
  let total = 0;
  for (let k = 0; k <= steps; k++) {
    const t = begin + (deadline - begin) * k / steps;
    let closed = 1;
    for (let i = 0; i < N && closed; i++) {
      closed *= away[i] + (1 - away[i]) * (1 - D.missing[i]) * onTime(jobs[i], t);
    }
    total += k === 0 || k === steps ? closed / 2 : closed;
  }
  return deadline - (deadline - begin) * total / steps;
}

// Outcomes

const ownOf = D.names.map((_, i) => sum(D.counts.map((draw) => sum(draw[i]))) / D.counts.length);

/** What each site shares, and what follows from that alone. */
function sharing(parts, d) {
  const offered = D.counts.map((draw) => draw.map((row, i) =>
    row.map((count, l) => parts[i] * D.most[i][l] * count)));
  const draws = D.counts.length;
  const each = D.names.map((_, i) => sum(offered.map((draw) => sum(draw[i]))) / draws);
  const shared = sum(each);
  const received = each.map((mine) => (d ? d / (N - 1) * (shared - mine) : 0));
  const found = D.counts.map((draw, k) => answers(draw, offered[k], d));
  return {
    parts, copies: d, offered, received, sent: each.map((mine) => d * mine), shared,
    answers: D.names.map((_, i) => sum(found.map((draw) => draw[i])) / draws),
    jobs: D.timing ? jobQuantiles(received.map((more, i) => ownOf[i] + more)) : null,
  };
}

function evenness({ offered, copies }) {
  const found = D.counts.flatMap((draw, k) => perClass((l) =>
    distance(draw.map((row) => row[l]), offered[k].map((row) => row[l]), copies)));
  const known = found.filter(present);
  return sum(known) / known.length;
}

/** Noise, rounds, seconds and hours at a deadline: what curves need. */
function course(share, deadline) {
  const p = D.missing.map((missing, i) => (D.timing
    ? 1 - (1 - missing) * (1 - D.timing.away[i]) * onTime(share.jobs[i], deadline) : missing));
  const heard = p.every((value) => value <= NEVER);
  const variance = heard ? sum(p.map((value, i) => value / (1 - value) * share.answers[i])) : Infinity;
  const noise = D.gradient ? variance / D.gradient : 0;
  const rounds = heard ? roundsAt(noise) : Infinity;
  const seconds = D.timing ? roundSeconds(share.jobs, deadline) : null;
  const moved = sum(share.sent);
  return {
    p, noise, rounds, seconds, moved, deadline,
    variance: D.alone ? variance / D.alone : 1,
    hours: D.timing ? rounds * seconds / 3600 : null,
    compute: moved / D.examples,
    cost: moved * (D.prices.record + D.prices.compute * D.prices.rounds),
  };
}

function outcome(parts, d, deadline) {
  const share = sharing(parts, d);
  const found = course(share, deadline);
  const gain = D.counts.map((draw, k) => gains(draw, share.offered[k], d, found.p));
  return {
    ...found,
    heterogeneity: evenness(share),
    sent: share.sent,
    received: share.received,
    extraLoad: share.received.map((more, i) => more / Math.max(ownOf[i], 1)),
    extraSeconds: D.timing ? share.received.map((more, i) =>
      meanSeconds(i, ownOf[i] + more) - meanSeconds(i, ownOf[i])) : null,
    gain: D.names.map((_, i) => sum(gain.map((draw) => draw[i])) / gain.length),
  };
}
globalThis.outcome = outcome; // for the test

/** The longest deadline of those with the fewest hours, within 5 %, of a grid. */
function bestDeadline(share) {
  const hours = D.timing.deadlines.map((T) => course(share, T).hours);
  const most = 1.05 * least(hours);
  return D.timing.deadlines[hours.findLastIndex((value) => value <= most)] ?? D.timing.deadlines.at(-1);
}
