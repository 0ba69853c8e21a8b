const N_COLORS = Number(
  getComputedStyle(document.documentElement).getPropertyValue("--series-count"));
const WIDE = 480; // from this width on, labels stand beside the lines' ends
const LABEL_HEIGHT = 20;
const figures = JSON.parse(document.getElementById("data").textContent);

// Elements. Text only ever becomes text nodes, so no label can be markup.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("--")) node.style.setProperty(name, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
const html = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const distinct = (values) => [...new Set(values)];
const ascending = (values) => distinct(values).sort((a, b) => a - b);
const present = (value) => value !== null && value !== undefined;
const least = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const greatest = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);

// Numbers

function digits(value) {
  const size = Math.abs(value);
  let text;
  if (size > 0 && size < 0.001) text = value.toExponential(2);
  else if (size < 10) text = value.toFixed(4);
  else text = value.toLocaleString("en", { maximumSignificantDigits: 4 });
  return text.replace("-", "−");
}
const plusMinus = (half) => (present(half) ? `± ${digits(half)}` : "");

function tickText(value) {
  const size = Math.abs(value);
  const [unit, suffix] = size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  if (size > 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(0).replace("-", "−");
  return (Number((value / unit).toPrecision(6)).toString() + suffix).replace("-", "−");
}

// Scales: a domain, ticks, and the place of a value as a fraction of the axis.

function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].find((m) => m * power >= rough * 0.999) * power;
}

function linearScale(low, high, count, integer) {
  const half = high > low ? 0 : (Math.abs(low) || 1) / 10; // a single value is in the middle
  [low, high] = [low - half, high + half];
  const step = Math.max(niceStep((high - low) / count), integer ? 1 : 0);
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
    ticks.push(k * step);
  }
  return { low, high, ticks, place: (value) => (value - low) / (high - low), log: false };
}

function logScale(low, high) {
  const candidates = (multiples) => {
    const ticks = [];
    for (let k = Math.floor(Math.log10(low)); k <= Math.log10(high); k++) {
      ticks.push(...multiples.map((m) => Number(`${m}e${k}`)).filter((v) => v >= low && v <= high));
    }
    return ticks;
  };
  const fine = candidates([1, 2, 5]);
  const place = (value) => Math.log(Math.max(value, low / 10) / low) / Math.log(high / low);
  return { low, high, ticks: fine.length <= 8 ? fine : candidates([1]), place, log: true };
}

/** An axis for all these series with their bands: logarithmic if they span decades above 0. */
function valueScale(series) {
  const edges = (side) => series.flatMap(({ mean, half }) =>
    mean.map((value, k) => present(value) ? value + side * (half[k] ?? 0) : null).filter(present));
  const [smallest, low, high] = [least(edges(0)), least(edges(-1)), greatest(edges(1))];
  if (!Number.isFinite(low)) return linearScale(0, 1, 5);
  if (smallest > 0 && high / smallest > 30) return logScale(smallest / 1.2, high * 1.05);
  const margin = (high - low) * 0.03;
  return linearScale(low - margin, high + margin, 5);
}

// Controls

let idCount = 0;

/** Buttons of which one is chosen; nothing where there is nothing to choose. */
function choice(legend, values, state, field, redraw, text = String) {
  if (values.length < 2) return null;
  const name = `choice-${idCount++}`;
  const buttons = values.map((value) => {
    const choose = () => { state[field] = value; redraw(); };
    const input = html("input", { type: "radio", name, onchange: choose });
    input.checked = value === state[field];
    return html("label", {}, input, html("span", {}, text(value)));
  });
  return html("fieldset", { "data-choice": legend }, html("legend", {}, legend),
    html("div", { class: "options" }, ...buttons));
}

function controls(...choices) {
  return choices.some((c) => c !== null) ? html("div", { class: "controls" }, ...choices) : "";
}

/** A box with values that follows the pointer inside `container`. */
function tip(container) {
  const node = html("div", { class: "tip", role: "status" });
  node.hidden = true;
  container.append(node);
  return {
    hide() { node.hidden = true; },
    /** Beside x; at y, or ending there if `above`; under the chart if it is narrow. */
    show(caption, rows, { x, y, above = false, narrow = false }) {
      node.replaceChildren(html("table", {}, html("caption", {}, caption), ...rows.map((row) =>
        html("tr", {},
          html("th", { scope: "row" }, row.color ? key(row) : null, row.label),
          html("td", {}, row.value), html("td", {}, row.spread ?? "")))));
      node.hidden = false;
      const room = container.clientWidth - node.offsetWidth;
      const beside = x + 14 <= room ? x + 14 : x - 14 - node.offsetWidth;
      node.style.left = `${narrow ? 0 : Math.max(0, Math.min(room, beside))}px`;
      node.style.top = `${above ? y - node.offsetHeight : y}px`;
    },
  };
}

const key = ({ color, dashed }) => html("i", { class: dashed ? "key dashed" : "key", "--c": color });

// Line charts. A series: { label, color, dashed, xs, mean, half }, half of the 95 % interval.

function path(points) {
  let text = "";
  let pen = "M";
  for (const point of points) {
    if (point === null) { pen = "M"; continue; }
    text += `${pen}${point[0].toFixed(1)},${point[1].toFixed(1)}`;
    pen = "L";
  }
  return text;
}

/** Places at least a label's height apart, as near as can be to those wanted. */
function spread(wanted, low, high) {
  const order = wanted.map((_, k) => k).sort((a, b) => wanted[a] - wanted[b]);
  const places = [...wanted];
  let free = low;
  for (const k of order) free = (places[k] = Math.max(places[k], free)) + LABEL_HEIGHT;
  let limit = high;
  for (const k of order.reverse()) limit = (places[k] = Math.min(places[k], limit)) - LABEL_HEIGHT;
  return places;
}

const pen = document.createElement("canvas").getContext("2d");
function textWidth(text, size) {
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(text).width;
}

/** Where things are in a chart of this width. */
function layOut(width, series, y, { integer, xLog }) {
  const wide = width >= WIDE;
  const direct = wide && series.length * LABEL_HEIGHT < 260;
  const longest = Math.max(0, ...series.map((s) => textWidth(s.label, 13)));
  const left = Math.max(10, ...y.ticks.map((t) => textWidth(tickText(t), 12.5))) + 10;
  const right = width - (direct ? Math.min(longest + 30, width * 0.4) : 12);
  const height = wide ? 330 : 260;
  const [top, bottom] = [10, height - 42];
  const xs = ascending(series.flatMap((s) => s.xs.filter((_, k) => present(s.mean[k]))));
  const [first, last] = [xs[0] ?? 0, xs.at(-1) ?? 1];
  const x = xLog
    ? logScale(first / 1.1, last * 1.1)
    : linearScale(first, last, (right - left) / 55, integer);
  return {
    wide, direct, width, height, left, right, top, bottom, x, y, xs,
    px: (value) => left + x.place(value) * (right - left),
    py: (value) => bottom - y.place(value) * (bottom - top),
  };
}

function axes({ left, right, bottom, height, x, y, px, py }, xLabel) {
  const text = (x, y, anchor, words) => svg("text", { x, y, "text-anchor": anchor }, words);
  const line = (t) => svg("line", {
    class: t === 0 && y.low < 0 ? "zero" : "gridline", x1: left, x2: right, y1: py(t), y2: py(t) });
  return svg("g", { class: "axes" },
    ...y.ticks.flatMap((t) => [line(t), text(left - 8, py(t) + 4, "end", tickText(t))]),
    ...x.ticks.map((t) => text(px(t), bottom + 18, "middle", tickText(t))),
    text((left + right) / 2, height - 6, "middle", xLabel));
}

function seriesGroup(s, { px, py }, clip) {
  const points = (k) => s.xs.map((x, i) =>
    present(s.mean[i]) ? [px(x), py(s.mean[i] + k * (s.half[i] ?? 0))] : null);
  const middle = points(0);
  const found = middle.filter(present); // a line joins what was measured
  const group = svg("g", {
    class: "series", "data-label": s.label, "--c": s.color, "clip-path": `url(#${clip})` });
  if (s.half.some(present)) {
    const around = [...points(1).filter(present), ...points(-1).filter(present).reverse()];
    group.append(svg("path", { class: "band", d: `${path(around)}Z` }));
  }
  group.append(svg("path", { class: s.dashed ? "line dashed" : "line", d: path(found) }));
  if (found.length <= 12) {
    group.append(...found.map(([cx, cy]) => svg("circle", { class: "dot", cx, cy, r: 3.5 })));
  }
  return group;
}

/** The values at one x, by pointer, finger or arrow key. */
function addCursor(picture, frame, series, box, cursorText) {
  const { px, py, xs, top, bottom, wide, height } = frame;
  const cursor = svg("g");
  picture.append(cursor);
  let index = -1;

  function leave() {
    cursor.replaceChildren();
    box.hide();
  }
  function moveTo(k) {
    index = Math.max(0, Math.min(xs.length - 1, k));
    const value = xs[index];
    const rows = series.map((s) => ({ ...s, k: s.xs.indexOf(value) }))
      .filter((s) => present(s.mean[s.k]))
      .sort((a, b) => b.mean[b.k] - a.mean[a.k]);
    const dot = (s) => svg("circle",
      { class: "dot", "--c": s.color, cx: px(value), cy: py(s.mean[s.k]), r: 4.5 });
    const rule = svg("line", { class: "cursor", x1: px(value), x2: px(value), y1: top, y2: bottom });
    cursor.replaceChildren(rule, ...rows.map(dot));
    const high = greatest(rows.map((s) => py(s.mean[s.k]))) < (top + bottom) / 2; // keep clear
    box.show(cursorText(value), rows.map((s) => (
      { ...s, value: digits(s.mean[s.k]), spread: plusMinus(s.half[s.k]) })),
    { x: px(value), y: wide ? (high ? bottom - 8 : top + 8) : height, above: wide && high, narrow: !wide });
  }
  function point(event) {
    const at = event.clientX - picture.getBoundingClientRect().left;
    const distances = xs.map((value) => Math.abs(px(value) - at));
    moveTo(distances.indexOf(Math.min(...distances)));
  }
  function press(event) {
    const moves = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: xs.length - 1 };
    if (event.key === "Escape") leave();
    if (!(event.key in moves)) return;
    event.preventDefault();
    moveTo(moves[event.key]);
  }
  const lift = (event) => { if (event.pointerType === "mouse") leave(); }; // a tap stays
  fill(picture, { onpointermove: point, onpointerdown: point, onpointerleave: lift,
    onkeydown: press, onblur: leave }, []);
}

/** A chart; `shared.hidden` are the labels of hidden lines, `shared.redraw` draws all anew. */
function lineChart(options) {
  const { cursorText, shared, integer, xLog } = options;
  const axis = { integer, xLog };
  const title = html("h3");
  const drawing = html("div");
  const labels = html("div");
  const canvas = html("div", { class: "canvas" }, drawing, labels);
  const box = tip(canvas);
  let [series, y, width] = [[], null, 0];

  const end = (s) => s.mean[s.mean.findLastIndex(present)];

  function draw() {
    width = canvas.clientWidth;
    if (!width) return;
    box.hide();
    const frame = layOut(width, series, y, axis);
    const { left, right, top, bottom, height } = frame;
    const ends = series.map((s) => `${s.label} ${digits(end(s))}`).join("; ");
    const words = `${title.textContent}. Last values: ${ends}. Arrow keys read the values.`;
    const picture = svg("svg", { height, role: "img", tabindex: 0, "aria-label": words });
    const clip = `clip-${idCount++}`;
    picture.append(axes(frame, options.xLabel), svg("clipPath", { id: clip }, svg("rect",
      { x: left - 5, y: top - 5, width: right - left + 10, height: bottom - top + 10 })));
    const shown = series.filter((s) => !shared.hidden.has(s.label));
    picture.append(...shown.map((s) => seriesGroup(s, frame, clip)));
    drawing.replaceChildren(picture);
    placeLabels(frame, picture);
    addCursor(picture, frame, shown, box, cursorText);
  }

  function placeLabels({ direct, right, top, bottom, py }, picture) {
    labels.className = direct ? "labels direct" : "labels below";
    const places = spread(series.map((s) => py(end(s))), top, bottom);
    labels.replaceChildren(...series.map((s, k) => {
      const pressed = !shared.hidden.has(s.label);
      const button = html("button", {
        type: "button", title: s.label, "aria-pressed": pressed, onclick: () => toggle(s.label),
        onpointerenter: () => emphasise(pressed ? s.label : null), onpointerleave: () => emphasise(null),
      }, key(s), html("span", {}, s.label));
      if (direct) {
        const leader = path([[right + 2, py(end(s))], [right + 14, places[k]]]);
        picture.append(svg("path",
          { class: pressed ? "leader" : "leader faded", "--c": s.color, d: leader }));
        button.style.left = `${right + 14}px`;
        button.style.top = `${places[k] - LABEL_HEIGHT / 2}px`;
        button.style.maxWidth = `${width - right - 14}px`;
      }
      return button;
    }));
  }

  function toggle(label) {
    if (!shared.hidden.delete(label)) shared.hidden.add(label);
    shared.redraw();
    [...labels.children].find((button) => button.title === label)?.focus({ preventScroll: true });
  }

  function emphasise(label) {
    for (const group of drawing.querySelectorAll(".series")) {
      group.classList.toggle("faded", label !== null && group.dataset.label !== label);
    }
  }

  new ResizeObserver(() => { if (canvas.clientWidth !== width) draw(); }).observe(canvas);
  return {
    node: html("div", { class: "chart" }, title, canvas),
    show(heading, newSeries, scale) {
      title.textContent = heading.replaceAll(" = ", "\u00a0=\u00a0");
      series = newSeries.filter((s) => s.mean.some(present));
      y = scale;
      draw();
    },
  };
}

// The kinds of figure. Each fills `plot`; `state` outlives a switch of the setting.

const color = (k) => `var(--series-${k % N_COLORS})`;
const seriesOf = (line, metric, look, over = "rounds") =>
  ({ label: line.label, xs: line[over], ...line.values[metric], ...look });
const perRound = (shared) => lineChart(
  { shared, xLabel: "round", integer: true, cursorText: (round) => `Round ${round}` });
/** Over rounds, or under a clock over what `state.over` says: seconds, or each line's own ticks. */
const perTime = (shared, state) => lineChart({ shared, integer: state.over === "rounds",
  get xLabel() { return state.over === "rounds" ? "round" : state.over; },
  cursorText: (at) => (state.over === "rounds" ? `Round ${at}` : `${digits(at)} ${state.over}`) });
const axisNote = (scale) => (scale.log ? " (logarithmic axis)" : "");

const headline = ({ title, higher, name }) =>
  (higher || name === "accuracy" ? title : `${title} (lower is better)`);
const metricChoice = (figure, state, redraw) =>
  choice("metric", figure.metrics.map(({ name }) => name), state, "metric", redraw,
    (chosen) => figure.metrics.find(({ name }) => name === chosen).title);

function probabilities(lines) {
  const found = ascending(lines.filter((line) => !line.always).map((line) => line.p));
  return found.length ? found : [0];
}

/** How each label looks: references grey and dashed, the others in the order of the palette. */
function looks(lines) {
  const plain = distinct(lines.filter((line) => !line.reference).map((line) => line.label));
  return new Map(lines.map(({ label, reference }) => [label, reference
    ? { color: "var(--reference)", dashed: true }
    : { color: color(plain.indexOf(label)), dashed: plain.indexOf(label) >= N_COLORS }]));
}

function drawCurves(plot, figure, state, group) {
  const everything = group.flatMap((member) => member.lines);
  const ps = probabilities(everything);
  const look = looks(figure.lines);
  state.p ??= ps.at(-1);
  state.moment ??= "second_moment";
  state.metric ??= figure.metrics[0].name;
  const clocked = present(figure.lines[0].seconds);
  state.over ??= clocked ? "seconds" : "rounds";
  const shared = { hidden: (state.hidden ??= new Set()), redraw };
  const charts = { metric: perTime(shared, state), moment: perTime(shared, state) };

  function redraw() {
    const lines = figure.lines.filter((line) => line.always || line.p === state.p);
    lines.sort((a, b) => a.reference - b.reference); // references are drawn on top
    const series = (metric) =>
      lines.map((line) => seriesOf(line, metric, look.get(line.label), state.over));
    const where = clocked ? "" : `, p = ${state.p}`;
    const scale = valueScale(everything.map((line) => line.values[state.moment]));
    const moment = state.moment === "second_moment" ? "Second moment" : "Exact second moment";
    const metric = figure.metrics.find(({ name }) => name === state.metric);
    const metricScale = valueScale(everything.map((line) => line.values[metric.name]));
    charts.metric.show(`${headline(metric)}${where}${axisNote(metricScale)}`,
      series(metric.name), metricScale);
    charts.moment.show(`${moment}${where}${axisNote(scale)}`, series(state.moment), scale);
  }
  plot.append(
    controls(
      metricChoice(figure, state, redraw),
      choice("over", clocked ? ["seconds", "ticks"] : ["rounds"], state, "over", redraw),
      choice("p", ps, state, "p", redraw),
      choice("second moment", ["second_moment", "second_moment_exact"], state, "moment", redraw,
        (moment) => (moment === "second_moment" ? "measured" : "exact"))),
    html("div", { class: "charts" }, charts.metric.node, charts.moment.node));
  redraw();
}

function drawScalarProducts(plot, figure) {
  const parts = [["type1", "Type I (same class)"], ["type2", "Type II (different)"],
    ["gradient_norm2", "|g|², their sum"]];
  const series = figure.lines.map((line) =>
    parts.map(([metric, label], k) => seriesOf(line, metric, { label, color: color(k) })));
  const scale = valueScale(series.flat());
  const shared = { hidden: new Set(), redraw };
  const charts = figure.lines.map(() => perRound(shared));
  function redraw() {
    charts.forEach((chart, k) => chart.show(figure.lines[k].label, series[k], scale));
  }
  plot.append(html("div", { class: "charts" }, ...charts.map((chart) => chart.node)));
  redraw();
}

function drawSecondMoment(plot, figure) {
  const { lines } = figure;
  const ps = probabilities(lines);
  const labels = distinct(lines.map((line) => line.label));
  const all = "compare all";
  const state = { p: ps.at(-1), label: ps.length === 1 && labels.length > 1 ? all : labels[0] };
  const parts = [
    ["reduction", { label: "reduction", color: color(0) }],
    ["reduction_expected", { label: "expected", color: "var(--ink)", dashed: true }],
    ["remark_bound", { label: "Remark’s bound", color: color(2) }],
    ["theorem2_bound", { label: "Theorem 2’s bound", color: color(1) }],
  ];
  const moments = [
    ["second_moment", { label: "measured", color: color(0) }],
    ["second_moment_exact", { label: "exact", color: "var(--ink)", dashed: true }],
  ];
  const scaleOf = (metrics) =>
    valueScale(lines.flatMap((line) => metrics.map(([metric]) => line.values[metric])));
  const [scale, momentScale] = [scaleOf(parts), scaleOf(moments)];
  const shared = { hidden: new Set(), redraw };
  const [chart, momentChart] = [perRound(shared), perRound(shared)];

  function redraw() {
    const drawn = lines.filter((line) => line.p === state.p && [all, line.label].includes(state.label));
    const compared = (metric, dashedMetric, words) => drawn.flatMap((line, k) => [
      seriesOf(line, metric, { color: color(k) }),
      seriesOf(line, dashedMetric, { label: `${line.label}, ${words}`, color: color(k), dashed: true })]);
    const apart = (metrics) =>
      drawn.flatMap((line) => metrics.map(([metric, look]) => seriesOf(line, metric, look)));
    const together = state.label === all;
    const where = together ? "" : ` for ${state.label}`;
    chart.show(
      `Reduction${where}${together ? " and Theorem 2’s bound" : ""}, p = ${state.p}${axisNote(scale)}`,
      together ? compared("reduction", "theorem2_bound", "bound") : apart(parts), scale);
    momentChart.show(`Second moment${where}, p = ${state.p}${axisNote(momentScale)}`,
      together ? compared("second_moment", "second_moment_exact", "exact") : apart(moments), momentScale);
  }
  plot.append(
    controls(
      choice("p", ps, state, "p", redraw),
      choice("line", labels.length > 1 ? [...labels, all] : labels, state, "label", redraw)),
    html("div", { class: "charts" }, momentChart.node, chart.node));
  redraw();
}

function drawHeterogeneity(plot, figure) {
  const named = figure.lines.map((line) => [`${line.label}, (${line.c}, ${line.d})`, line.values]);
  const rows = [...new Map(named)].map(([name, values]) => ({
    name,
    before: values.heterogeneity_before.mean[0],
    after: values.heterogeneity_after.mean[0],
    half: values.heterogeneity_after.half[0] ?? 0,
    expected: values.heterogeneity_after_expected.mean[0],
  }));
  const scale = linearScale(0, greatest(rows.flatMap((row) => [row.before, row.after + row.half])) || 1, 5);
  const percent = (value) => `${(100 * scale.place(Math.max(0, value))).toFixed(2)}%`;
  const across = (style, from, to) => svg("line", { class: style, x1: from, x2: to, y1: "50%", y2: "50%" });
  const upright = (style, x, y1, y2) => svg("line", { class: style, x1: x, x2: x, y1, y2 });
  const dot = (style, x) => svg("circle", { class: style, cx: x, cy: "50%", r: 5 });
  const tick = (x) => upright("expected", x, "18%", "82%");
  const legend = (mark, text) => html("span", {}, svg("svg", { "aria-hidden": true }, mark), text);

  function strip({ name, before, after, half, expected }) {
    const known = present(expected); // the optimal scheme has no formula
    const text = `${before.toFixed(3)} → ${after.toFixed(3)}${known ? `, expected ${expected.toFixed(3)}` : ""}`;
    const picture = svg("svg", { role: "img", "aria-label": `${name}: ${text}` },
      svg("title", {}, `after sharing ${digits(after)} ± ${digits(half)}`),
      ...scale.ticks.map((t) => upright("gridline", percent(t), 0, "100%")),
      across("span", percent(before), percent(after)),
      across("spread", percent(after - half), percent(after + half)),
      dot("before", percent(before)), dot("after", percent(after)), known ? tick(percent(expected)) : "");
    return html("div", { class: "row" }, html("div", {}, name),
      html("div", { class: "strip" }, picture), html("div", { class: "figures" }, text));
  }
  const axis = svg("svg", { "aria-hidden": true }, ...scale.ticks.map((t) =>
    svg("text", { x: percent(t), y: 14, "text-anchor": "middle" }, tickText(t))));
  plot.append(html("div", { class: "dots" },
    html("div", { class: "key-row" }, legend(dot("before", "50%"), "before sharing"),
      legend(dot("after", "50%"), "after sharing"), legend(tick("50%"), "after, expected for these counts")),
    ...rows.map(strip),
    html("div", { class: "axis" }, html("div"), html("div", { class: "strip" }, axis), html("div"))));
}

function drawGrid(plot, figure) {
  const { lines } = figure;
  const last = Math.max(...lines[0].rounds);
  const { metrics } = figure;
  const measured = (round) => metrics.every(({ name }) => // some are measured after some rounds only
    lines.some((line) => present(line.values[name].mean[round])));
  const rounds = ascending([10, 20, last].filter((round) => round <= last && (round === last || measured(round))));
  const ps = probabilities(lines);
  const labels = distinct(lines.map((line) => line.label));
  const state = { round: rounds[0], p: ps.at(-1), label: labels[0], metric: metrics[0].name };
  const reached = (line, statistic) => line.values[state.metric][statistic][state.round];
  const offered = () => lines.map(({ values }) => { // at these rounds
    const { mean, half } = values[state.metric];
    return { mean: rounds.map((r) => mean[r]), half: rounds.map((r) => half[r]) };
  });
  const heat = html("div", { class: "heat" });
  const shared = { hidden: new Set(), redraw };
  const chart = lineChart({ shared, xLabel: "offline cost dc, copies per example",
    xLog: lines.every((line) => line.c * line.d > 0), cursorText: (cost) => `dc = ${cost}` });

  const short = ({ title }) => (title === "Test accuracy" ? "accuracy" : title);
  const costOf = (line) => Number((line.c * line.d).toPrecision(6));

  function cell(line, box, [low, high], metric) {
    const mean = line && reached(line, "mean");
    if (!present(mean)) return html("td", { class: "none" }, "–");
    const from = metric.higher ? mean - low : high - mean; // the better, the darker
    const level = high > low ? (100 * from) / (high - low) : 50;
    const spread = plusMinus(reached(line, "half"));
    const rows = [
      { label: short(metric), value: digits(mean), spread },
      { label: "offline cost dc", value: String(costOf(line)) },
    ];
    const node = html("td", { "--level": level.toFixed(1), class: level > 66 ? "high" : "",
      "aria-label": `${digits(mean)} ${spread}, offline cost ${costOf(line)}` }, mean.toFixed(3));
    const place = () => ({ x: node.offsetLeft + node.offsetWidth / 2, y: node.offsetTop + node.offsetHeight });
    const show = () => box.show(`c = ${line.c}, d = ${line.d}`, rows, place());
    return fill(node, { onpointerenter: show, onpointerleave: box.hide }, []);
  }

  function redraw() {
    const metric = metrics.find(({ name }) => name === state.metric);
    const now = offered();
    const means = now.flatMap(({ mean }) => mean).filter(present);
    const range = [least(means), greatest(means)];
    const drawn = lines.filter((line) => line.p === state.p && line.label === state.label);
    const cs = ascending(drawn.map((line) => line.c));
    const ds = ascending(drawn.map((line) => line.d));
    heat.replaceChildren();
    const box = tip(heat);
    const head = ds.map((d) => html("th", { scope: "col" }, `d = ${d}`));
    const body = [...cs].reverse().map((c) => html("tr", {}, html("th", { scope: "row" }, `c = ${c}`),
      ...ds.map((d) => cell(drawn.find((line) => line.c === c && line.d === d), box, range, metric))));
    const where = `after round ${state.round}, p = ${state.p}`;
    const foot = html("tr", {}, html("td", { class: "corner" }), ...head);
    heat.prepend(html("table", {}, html("caption", {}, `${headline(metric).replace("Test accuracy", "Accuracy")} ${where}`),
      html("tbody", {}, ...body), html("tfoot", {}, foot)));
    const series = cs.map((c, k) => {
      const row = drawn.filter((line) => line.c === c).sort((a, b) => a.d - b.d);
      return { label: `c = ${c}`, color: color(k), dashed: k >= N_COLORS, xs: row.map(costOf),
        mean: row.map((line) => reached(line, "mean")), half: row.map((line) => reached(line, "half")) };
    });
    chart.show(`What the copies buy, ${where}`, series, valueScale(now));
  }
  plot.append(
    controls(
      metricChoice(figure, state, redraw),
      choice("after round", rounds, state, "round", redraw),
      choice("p", ps, state, "p", redraw),
      choice("line", labels, state, "label", redraw)),
    html("div", { class: "charts" }, heat, chart.node));
  redraw();
}

const DRAW = {
  "curves": drawCurves,
  "scalar-products": drawScalarProducts,
  "heterogeneity": drawHeterogeneity,
  "second-moment": drawSecondMoment,
  "grid": drawGrid,
};

/** A group of figures that differ in the setting: one is shown at a time. */
function startGroup(node) {
  const sections = [...node.querySelectorAll(":scope > section")];
  const members = sections.map((section) => figures[section.dataset.index]);
  const names = sections.map((section) => section.dataset.option);
  const unlike = distinct(names).length === names.length;
  const state = { member: 0 }; // and what the figures keep in it
  const bar = html("div");
  node.prepend(bar);

  const address = (section) => new URL(`#${section.id}`, location.href).hash;

  function show() {
    const plot = sections[state.member].querySelector(".plot");
    sections.forEach((section, k) => { section.hidden = k !== state.member; });
    plot.replaceChildren();
    DRAW[members[state.member].kind](plot, members[state.member], state, members);
  }
  function choose() {
    history.replaceState(null, "", address(sections[state.member])); // links to the other still work
    show();
  }
  function follow() {
    const k = sections.findIndex((section) => address(section) === location.hash);
    if (k < 0) return;
    state.member = k;
    start();
    sections[k].scrollIntoView();
  }
  function start() {
    const text = (k) => (unlike ? names[k] : members[k].title);
    const keys = [...members.keys()];
    bar.replaceChildren(controls(choice("setting", keys, state, "member", choose, text)));
    show();
  }
  start();
  follow();
  window.addEventListener("hashchange", follow);
}

document.documentElement.classList.add("scripted");
document.querySelectorAll(".group").forEach(startGroup);
