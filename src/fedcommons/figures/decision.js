// The decision page: sliders, and all that follows them. It comes after page_charts.js, whose
// elements, scales and charts it uses, and outcome.js, which computes.

// What is chosen

const longest = D.timing ? D.timing.deadlines.at(-1) : null;
const state = {
  parts: D.names.map(() => D.start.part), copies: D.start.copies,
  deadline: D.start.deadline, best: Boolean(D.timing),
  name: "plan", usual: {}, anchor: () => "curves", // what the address says
};

// Words

function duration(seconds) {
  if (!Number.isFinite(seconds)) return "never";
  for (const [unit, size] of [["days", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= 2 * size) return `${(seconds / size).toPrecision(3)} ${unit}`;
  }
  return `${Number(seconds.toPrecision(3))} s`;
}
const percent = (value) => {
  if (!Number.isFinite(value)) return "–";
  const text = (100 * value).toFixed(Math.abs(value) < 0.1 && value !== 0 ? 1 : 0);
  return `${text.replace("-", "−")} %`;
};
const count = (value) => Math.round(value).toLocaleString("en");
const signed = (value) => (value > 0 ? `+${percent(value)}` : percent(value));

const MEASURES = [
  { name: "hours", title: "Time to the target", text: (o) => duration(3600 * o.hours), unit: "hours", timed: true },
  { name: "seconds", title: "A round takes", text: (o) => duration(o.seconds), unit: "seconds", timed: true },
  { name: "rounds", title: "Rounds to the target", text: (o) => (Number.isFinite(o.rounds) ? count(o.rounds) : "never") },
  { name: "variance", title: "Noise of the first round", text: (o) => percent(o.variance), unit: `relative to no sharing${D.timing ? ", nobody late" : ""}` },
  { name: "heterogeneity", title: "Unevenness of the labels", text: (o) => o.heterogeneity.toFixed(3) },
  { name: "moved", title: "Records moved", text: (o) => count(o.moved) },
  { name: "compute", title: "More computing", text: (o) => signed(o.compute) },
  { name: "cost", title: "Cost", text: (o) => count(o.cost) },
].filter(({ timed }) => D.timing || !timed);

initially(state, "shown", MEASURES.map(({ name }) => name), D.timing ? "hours" : "variance");

// Tiles

const alone = (() => {
  const share = sharing(D.names.map(() => 0), 0);
  return outcome(share.parts, 0, D.timing ? bestDeadline(share) : null);
})();

const tiles = document.getElementById("tiles");
const tileOf = new Map(MEASURES.map((measure) => {
  const [value, beside] = [html("b"), html("span", { class: "small" })];
  tiles.append(html("div", { class: "tile", "data-measure": measure.name },
    html("span", {}, measure.title), value, beside));
  return [measure.name, { value, beside }];
}));

function showTiles(now) {
  for (const measure of MEASURES) {
    const { value, beside } = tileOf.get(measure.name);
    value.textContent = measure.text(now);
    beside.textContent = `${measure.text(alone)} without sharing`;
  }
}

// Sliders

function slider(label, { min, max, step, value, text, change }) {
  const shown = html("output");
  const input = html("input", { type: "range", min, max, step, "aria-label": label,
    oninput: () => { change(Number(input.value)); redraw(); } });
  input.value = value;
  const set = (now) => { input.value = now; shown.textContent = text(now); };
  set(value);
  return { node: html("label", { class: "slider" }, html("span", {}, label), input, shown), set, input };
}

const sharePart = slider("every site shares", { min: 0, max: 1, step: 0.01, value: D.start.part,
  text: (v) => `${percent(v)} of what it may`, change: (v) => { state.parts = state.parts.map(() => v); } });
const copies = slider("copies of each record, d", { min: 0, max: D.mostCopies, step: 1,
  value: D.start.copies, text: String, change: (v) => { state.copies = v; } });
// The slider of deadlines is logarithmic, from 0 to 1.
const [shortest] = D.timing ? D.timing.deadlines : [1];
const toDeadline = (v) => shortest * (longest / shortest) ** v;
const fromDeadline = (T) => clip01(Math.log(T / shortest) / Math.log(longest / shortest));
const deadline = D.timing && slider("deadline of a round", { min: 0, max: 1, step: 0.005,
  value: fromDeadline(D.start.deadline), text: (v) => duration(toDeadline(v)),
  change: (v) => { state.deadline = toDeadline(v); state.best = false; keepBest.checked = false; } });
const keepBest = html("input", { type: "checkbox",
  onchange: () => { state.best = keepBest.checked; redraw(); } });
keepBest.checked = true;
document.getElementById("sliders").append(sharePart.node, copies.node,
  ...(deadline ? [deadline.node, html("label", { class: "check" }, keepBest, "always the best deadline")] : []),
  html("button", { type: "button", onclick: () => {
    Object.assign(state, { parts: D.names.map(() => D.start.part), copies: D.start.copies, best: true });
    keepBest.checked = true;
    redraw();
  } }, "Back to the recommendation"));

// Site by site

const body = document.querySelector("#sites tbody");
const rowOf = D.names.map((name, i) => {
  const may = D.most[i].some((c) => c > 0);
  const part = slider(name, { min: 0, max: 1, step: 0.01, value: D.start.part,
    text: may ? percent : () => "may share nothing", change: (v) => { state.parts[i] = v; } });
  part.input.disabled = !may;
  const cell = (heading) => html("td", { "data-head": heading });
  const cells = Object.fromEntries(D.siteHeads.map(([key, heading]) => [key, cell(heading)]));
  body.append(html("tr", {}, html("th", { scope: "row" }, name),
    html("td", { "data-head": "shares" }, part.node), ...Object.values(cells)));
  return { part, cells };
});

/** What would become of the whole if one site alone kept its records, relative. */
function ifItKept(i, now) {
  const share = sharing(state.parts.map((part, k) => (k === i ? 0 : part)), state.copies);
  const found = course(share, now.deadline);
  return D.timing ? found.hours / now.hours - 1 : found.noise / now.noise - 1;
}

function moreOrLess(change) {
  const size = percent(Math.abs(change));
  if (Math.abs(change) < 0.0005) return D.timing ? "training would take as long" : "the noise would be the same";
  if (D.timing) return `training would take ${size} ${change > 0 ? "longer" : "less"}`;
  return `there would be ${size} ${change > 0 ? "more" : "less"} noise`;
}

function verdict(i, now) {
  if (!(now.sent[i] > 0)) return ["shares nothing", ""];
  if (now.gain[i] <= 0) return ["would gain more by not sharing: those who hold its records are missing too often", "bad"];
  const change = ifItKept(i, now);
  if (!Number.isFinite(change)) return ["gains", "good"];
  const beside = `if it alone kept its records, ${moreOrLess(change)}`;
  return change < -0.005 && D.timing
    ? [`its part gains, the whole would be sooner without: ${beside}`, "open"]
    : [`gains by sharing; ${beside}`, "good"];
}

function showSites(now) {
  rowOf.forEach(({ part, cells }, i) => {
    part.set(state.parts[i]);
    const each = now.sent[i] / Math.max(1, N - 1);
    const about = each < 0.95 ? "less than one" : `about ${each < 10 ? Number(each.toPrecision(2)) : count(each)}`;
    cells.sends.textContent = now.sent[i] > 0
      ? `${count(now.sent[i])}: ${about} to each of the other ${N - 1}` : "0";
    cells.receives.textContent = count(now.received[i]);
    cells.longer.textContent = D.timing
      ? `${now.extraSeconds[i] > 0 ? "+" : ""}${duration(now.extraSeconds[i])} (${signed(now.extraLoad[i])} work)` : signed(now.extraLoad[i]);
    cells.misses.textContent = percent(now.p[i]);
    cells.gains.textContent = percent(now.gain[i]);
    const [words, style] = verdict(i, now);
    cells.verdict.replaceChildren(html("span", { class: `verdict ${style}` }, words));
  });
}

// Curves

const ALONG = [
  { name: "part", title: "what every site shares", xLabel: "part of what may be shared", text: (x) => percent(x) },
  { name: "copies", title: "copies", xLabel: "copies of each record, d", text: (x) => `d = ${x}` },
  { name: "deadline", title: "deadline", xLabel: "deadline of a round in seconds", text: duration },
].filter(({ name }) => D.timing || name !== "deadline");
const curve = (measure) => (measure === "heterogeneity"
  ? (share) => ({ heterogeneity: evenness(share) }) : course);
const charts = new Map(ALONG.map(({ name, xLabel, text }) => [name,
  lineChart({ shared: { hidden: hiddenLines(state), redraw: () => showCurves() }, xLabel, cursorText: text,
    labelled: false, xLog: name === "deadline", integer: name === "copies" })]));

/** What a measure is along one of the sliders, the others staying where they are. */
function along(name, measure) {
  const at = curve(measure);
  const value = (share, T) => at(share, T)[measure];
  const d = state.copies || 1; // where nothing is shared, curves begin there
  const parts = state.parts.some((part) => part) ? state.parts : D.names.map(() => 1);
  const deadlineOf = (share) => (D.timing ? (state.best ? bestDeadline(share) : state.deadline) : null);
  if (name === "deadline") {
    const share = sharing(state.parts, state.copies);
    return D.timing.deadlines.map((T) => [T, value(share, T)]);
  }
  if (name === "copies") {
    return Array.from({ length: D.mostCopies + 1 }, (_, d) => {
      const share = sharing(parts, d);
      return [d, value(share, deadlineOf(share))];
    });
  }
  return Array.from({ length: 11 }, (_, k) => {
    const share = sharing(D.names.map(() => k / 10), d);
    return [k / 10, value(share, deadlineOf(share))];
  });
}

function showCurves() {
  const measure = MEASURES.find(({ name }) => name === state.shown);
  for (const { name, title } of ALONG) {
    const points = along(name, state.shown);
    const finite = points.map(([, y]) => (Number.isFinite(y) ? y : null));
    const series = { label: measure.title, color: color(0), xs: points.map(([x]) => x),
      mean: finite, half: finite.map(() => null) };
    const unit = measure.unit ? ` (${measure.unit})` : "";
    const where = name === "part" ? `, d = ${state.copies || 1}` : "";
    charts.get(name).show(`${measure.title}${unit}, by ${title}${where}`, [series],
      valueScale([{ mean: [...finite, 0], half: [...finite, 0].map(() => null) }]));
  }
}
const chosen = html("div");
document.getElementById("curves").append(chosen,
  html("div", { class: "charts" }, ...[...charts.values()].map(({ node }) => node)));
chosen.append(controls(choice("what", MEASURES.map(({ name }) => name), state, "shown", showCurves,
  (name) => MEASURES.find((m) => m.name === name).title)));

// The front: what nothing beats in both cost and noise (or hours)

const around = (x, y, width, height) =>
  ({ left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 });
const overlap = (a, b) =>
  a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

/** Where a point's leader meets its label. */
const meeting = ([x, y], box) =>
  [Math.max(box.left, Math.min(box.right, x)), y < (box.top + box.bottom) / 2 ? box.top : box.bottom];

/** Small boxes along the way from one place to another. */
function boxesAlong([x, y], [toX, toY]) {
  const pieces = Math.ceil(Math.hypot(toX - x, toY - y) / 3);
  return Array.from({ length: Math.max(0, pieces - 1) }, (_, k) =>
    around(x + (toX - x) * (k + 1) / pieces, y + (toY - y) * (k + 1) / pieces, 3, 3));
}

/** A box for a label near a point, clear of all that is taken: the nearest, first above. Its leader
 *  crosses no label and no other leader. */
function freePlace([x, y], width, taken, labels, { left, right, top, bottom }) {
  for (let far = 16; far < 400; far += 6) {
    for (const turn of [-0.3, -0.15, -0.5, 0, 0.15, -0.7, 0.3, 0.5, 0.7, 1]) {
      const angle = turn * Math.PI;
      const box = around(x + (far + width / 2) * Math.cos(angle), y + far * Math.sin(angle), width, 18);
      const inside = box.left >= left && box.right <= right && box.top >= top && box.bottom <= bottom;
      const leader = boxesAlong([x, y], meeting([x, y], box));
      if (inside && !taken.some((other) => overlap(box, other))
        && !labels.some((label) => leader.some((piece) => overlap(piece, label)))) return box;
    }
  }
  return around(x, y, width, 18);
}

function drawFront() {
  const place = document.getElementById("front");
  const measure = D.timing ? "hours" : "variance";
  const points = D.options.filter((o) => present(o[measure]));
  const front = points.filter((o) => o.best).sort((a, b) => a.cost - b.cost);
  const width = place.clientWidth;
  if (!width) return;
  const wide = width >= 620;
  const labelOf = (o) => `c = ${Number(o.proportion.toPrecision(3))}, d = ${o.copies}`;
  const valueOf = (o) => (D.timing ? duration(3600 * o.hours) : percent(o.variance));
  const height = wide ? 420 : 300;
  const [left, top, bottom] = [56, wide ? 46 : 12, height - 44]; // above the dots is room for labels
  const right = width - 14;
  const x = linearScale(0, greatest(points.map((o) => o.cost)) || 1, Math.max(3, (right - left) / 90));
  const y = linearScale(0, greatest(points.map((o) => o[measure])) || 1, 5);
  const px = (value) => left + x.place(value) * (right - left);
  const py = (value) => bottom - y.place(value) * (bottom - top);
  const words = D.timing ? "hours to the target" : "noise relative to no sharing";
  const picture = svg("svg", { height, role: "img",
    "aria-label": `Cost against ${words}; the options that nothing beats: ${front.map(labelOf).join("; ")}` });
  picture.append(axes({ left, right, bottom, height, x, y, px, py }, `cost of sharing; upwards: ${words}`));
  picture.append(svg("path", { class: "line", "--c": color(0),
    d: path(front.map((o) => [px(o.cost), py(o[measure])])) }));
  for (const o of points) {
    picture.append(svg("circle", { class: o.best ? "dot" : "dot faded", "--c": color(0),
      cx: px(o.cost), cy: py(o[measure]), r: o.recommended ? 7 : 4 },
    svg("title", {}, `${labelOf(o)}: ${words} ${valueOf(o)}, cost ${count(o.cost)}`)));
  }
  const list = html("ol", { class: "front-list" });
  const taken = points.map((o) => around(px(o.cost), py(o[measure]), 8, 8));
  front.slice(1).forEach((o, k) => { // the line between them
    taken.push(...boxesAlong([px(front[k].cost), py(front[k][measure])], [px(o.cost), py(o[measure])]));
  });
  const labels = []; // and their leaders
  for (const o of front) {
    if (!wide) {
      list.append(html("li", { class: o.recommended ? "chosen" : "" },
        `${labelOf(o)}: ${valueOf(o)}, cost ${count(o.cost)}`));
      continue;
    }
    const at = [px(o.cost), py(o[measure])];
    const box = freePlace(at, textWidth(labelOf(o), 13.5) + 4, taken, labels, { left, right, top: 2, bottom });
    const end = meeting(at, box);
    labels.push(box, ...boxesAlong(at, end));
    taken.push(box, ...boxesAlong(at, end));
    picture.append(svg("path", { class: "leader", "--c": color(0), d: path([at, end]) }),
      svg("text", { class: o.recommended ? "front-label chosen" : "front-label",
        x: (box.left + box.right) / 2, y: box.bottom - 4, "text-anchor": "middle" }, labelOf(o)));
  }
  place.replaceChildren(html("div", { class: "canvas" }, picture), ...(wide ? [] : [list]));
}
new ResizeObserver(drawFront).observe(document.getElementById("front"));

// All together

function redraw() {
  const share = sharing(state.parts, state.copies);
  if (D.timing && state.best) state.deadline = bestDeadline(share);
  const now = outcome(state.parts, state.copies, state.deadline);
  sharePart.set(sum(state.parts) / N);
  copies.set(state.copies);
  if (deadline) deadline.set(fromDeadline(state.deadline));
  showTiles(now);
  showSites(now);
  showCurves();
}
redraw();
document.documentElement.classList.add("scripted");
