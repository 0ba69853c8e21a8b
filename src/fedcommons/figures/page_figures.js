// The kinds of figure. Each fills `plot` and returns what gives the rows of its table; `state`
// outlives a switch of the setting.

const seriesOf = (line, metric, look, over = "rounds") =>
  ({ label: line.label, xs: line[over], ownPlaces: over === "ticks", ...line.values[metric], ...look });
const rowsOf = (...charts) => () => charts.flatMap((chart) => chart.rows());
const perRound = (shared) => lineChart(
  { shared, xLabel: "round", integer: true, cursorText: (round) => `Round ${round}` });
/** Over rounds, or under a clock over what `state.over` says: seconds, or each line's own ticks. */
const perTime = (shared, state) => lineChart({ shared, integer: state.over === "rounds",
  get xLabel() { return state.over === "rounds" ? "round" : state.over; },
  cursorText: (at) => (state.over === "rounds" ? `Round ${at}` : `${digits(at)} ${state.over}`) });
const axisNote = (scale) => (scale.log ? " (logarithmic axis)" : "");

const headline = ({ title, higher, name }) =>
  (higher || name === "accuracy" ? title : `${title} (lower is better)`);

/** Which metric is shown, and of all test examples together or of each run's worst site. */
function startMetric(figure, state) {
  const names = figure.metrics.map(({ name }) => name);
  initially(state, "metric", names, names[0]);
  initially(state, "sites", figure.sites ? ["pooled", "worst site"] : ["pooled"], "pooled");
}
const metricChoices = (figure, state, redraw) => [
  choice("metric", figure.metrics.map(({ name }) => name), state, "metric", redraw,
    (chosen) => figure.metrics.find(({ name }) => name === chosen).title),
  choice("sites", figure.sites ? ["pooled", "worst site"] : ["pooled"], state, "sites", redraw)];
/** The metric that is chosen, and what its numbers are called; the table of sites follows. */
function chosenMetric(plot, figure, state) {
  const metric = figure.metrics.find(({ name }) => name === state.metric);
  for (const table of plot.parentElement.querySelectorAll("[data-metric]")) {
    table.hidden = table.dataset.metric !== metric.name;
  }
  return state.sites === "pooled" ? { ...metric, of: metric.name, where: "" }
    : { ...metric, of: `worst_site_${metric.name}`, where: " at the worst site" };
}

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
  const clocked = present(figure.lines[0].seconds);
  const moments = clocked ? ["second_moment"] : ["second_moment", "second_moment_exact"];
  const overs = clocked ? ["seconds", "ticks"] : ["rounds"];
  initially(state, "p", ps, ps.at(-1));
  initially(state, "moment", moments, moments[0]);
  startMetric(figure, state);
  initially(state, "over", overs, overs[0]);
  const shared = { hidden: hiddenLines(state), redraw };
  const charts = { metric: perTime(shared, state), moment: perTime(shared, state) };

  function redraw() {
    const lines = figure.lines.filter((line) => line.always || line.p === state.p);
    lines.sort((a, b) => a.reference - b.reference); // references are drawn on top
    const series = (metric) =>
      lines.map((line) => seriesOf(line, metric, look.get(line.label), state.over));
    const where = clocked ? "" : `, p = ${state.p}`;
    const scale = valueScale(everything.map((line) => line.values[state.moment]));
    const moment = state.moment === "second_moment" ? "Second moment" : "Exact second moment";
    const metric = chosenMetric(plot, figure, state);
    const metricScale = valueScale(everything.map((line) => line.values[metric.of]), metric);
    charts.metric.show(`${headline(metric)}${metric.where}${where}${axisNote(metricScale)}`,
      series(metric.of), metricScale);
    charts.moment.show(`${moment}${where}${axisNote(scale)}`, series(state.moment), scale);
  }
  plot.append(
    controls(
      ...metricChoices(figure, state, redraw),
      choice("over", overs, state, "over", redraw),
      choice("p", ps, state, "p", redraw),
      choice("second moment", moments, state, "moment", redraw,
        (moment) => (moment === "second_moment" ? "measured" : "exact"))),
    html("div", { class: "charts" }, charts.metric.node, charts.moment.node));
  redraw();
  return rowsOf(charts.metric, charts.moment);
}

function drawScalarProducts(plot, figure, state) {
  const parts = [["type1", "Type I (same class)"], ["type2", "Type II (different)"],
    ["gradient_norm2", "|g|², their sum"]];
  const series = figure.lines.map((line) =>
    parts.map(([metric, label], k) => seriesOf(line, metric, { label, color: color(k) })));
  const scale = valueScale(series.flat());
  const shared = { hidden: hiddenLines(state), redraw };
  const charts = figure.lines.map(() => perRound(shared));
  function redraw() {
    charts.forEach((chart, k) => chart.show(figure.lines[k].label, series[k], scale));
  }
  plot.append(html("div", { class: "charts" }, ...charts.map((chart) => chart.node)));
  redraw();
  return rowsOf(...charts);
}

function drawSecondMoment(plot, figure, state) {
  const { lines } = figure;
  const ps = probabilities(lines);
  const labels = distinct(lines.map((line) => line.label));
  const all = "compare all";
  const offered = labels.length > 1 ? [...labels, all] : labels;
  initially(state, "p", ps, ps.at(-1));
  initially(state, "label", offered, ps.length === 1 ? offered.at(-1) : labels[0]);
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
  const shared = { hidden: hiddenLines(state), redraw };
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
      choice("line", offered, state, "label", redraw)),
    html("div", { class: "charts" }, momentChart.node, chart.node));
  redraw();
  return rowsOf(momentChart, chart);
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
  return () => rows.flatMap(({ name, before, after, half, expected }) => [
    [figure.title, name, "sharing", "before", before, ""],
    [figure.title, name, "sharing", "after", after, half],
    ...(present(expected) ? [[figure.title, name, "sharing", "expected", expected, ""]] : [])]);
}

function drawGrid(plot, figure, state) {
  const { lines } = figure;
  const last = Math.max(...lines[0].rounds);
  const { metrics } = figure;
  const measured = (round) => metrics.every(({ name }) => // some are measured after some rounds only
    lines.some((line) => present(line.values[name].mean[round])));
  const rounds = ascending([10, 20, last].filter((round) => round <= last && (round === last || measured(round))));
  const ps = probabilities(lines);
  const labels = distinct(lines.map((line) => line.label));
  initially(state, "round", rounds, rounds[0]);
  initially(state, "p", ps, ps.at(-1));
  initially(state, "label", labels, labels[0]);
  startMetric(figure, state);
  const reached = (line, statistic) => line.values[metric.of][statistic][state.round];
  const offered = () => lines.map(({ values }) => { // at these rounds
    const { mean, half } = values[metric.of];
    return { mean: rounds.map((r) => mean[r]), half: rounds.map((r) => half[r]) };
  });
  const heat = html("div", { class: "heat" });
  const shared = { hidden: hiddenLines(state), redraw };
  const chart = lineChart({ shared, xLabel: "offline cost dc, copies per example",
    xLog: lines.every((line) => line.c * line.d > 0), cursorText: (cost) => `dc = ${cost}` });

  let metric = null; // as it is chosen

  const short = ({ title }) => (title === "Test accuracy" ? "accuracy" : title);
  const costOf = (line) => Number((line.c * line.d).toPrecision(6));

  function cell(line, box, [low, high]) {
    const mean = line && reached(line, "mean");
    if (!present(mean)) return html("td", { class: "none" }, "–");
    const from = metric.higher ? mean - low : high - mean; // the better, the darker
    const level = high > low ? (100 * from) / (high - low) : 50;
    const { value, spread } = meanAndHalf(mean, reached(line, "half"));
    const rows = [
      { label: short(metric), value, spread },
      { label: "offline cost dc", value: String(costOf(line)) },
    ];
    const node = html("td", { "--level": level.toFixed(1), class: level > 66 ? "high" : "",
      "aria-label": `${value} ${spread}, offline cost ${costOf(line)}` }, mean.toFixed(3));
    const place = () => ({ x: node.offsetLeft + node.offsetWidth / 2,
      y: node.offsetTop + node.offsetHeight + 4, under: node.offsetTop + node.offsetHeight + 4 });
    const show = () => box.show(`c = ${line.c}, d = ${line.d}`, rows, place());
    return fill(node, { onpointerenter: show, onpointerleave: box.hide }, []);
  }

  function redraw() {
    metric = chosenMetric(plot, figure, state);
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
      ...ds.map((d) => cell(drawn.find((line) => line.c === c && line.d === d), box, range))));
    const where = `${metric.where} after round ${state.round}, p = ${state.p}`;
    const foot = html("tr", {}, html("td", { class: "corner" }), ...head);
    heat.prepend(html("table", {}, html("caption", {}, `${headline(metric).replace("Test accuracy", "Accuracy")}${where}`),
      html("tbody", {}, ...body), html("tfoot", {}, foot)));
    const series = cs.map((c, k) => {
      const row = drawn.filter((line) => line.c === c).sort((a, b) => a.d - b.d);
      return { label: `c = ${c}`, color: color(k), dashed: k >= N_COLORS, xs: row.map(costOf),
        mean: row.map((line) => reached(line, "mean")), half: row.map((line) => reached(line, "half")) };
    });
    chart.show(`What the copies buy,${where}`, series, valueScale(now, metric));
  }
  plot.append(
    controls(
      ...metricChoices(figure, state, redraw),
      choice("after round", rounds, state, "round", redraw),
      choice("p", ps, state, "p", redraw),
      choice("line", labels, state, "label", redraw)),
    html("div", { class: "charts" }, heat, chart.node));
  redraw();
  return rowsOf(chart);
}

const DRAW = {
  "curves": drawCurves,
  "scalar-products": drawScalarProducts,
  "heterogeneity": drawHeterogeneity,
  "second-moment": drawSecondMoment,
  "grid": drawGrid,
};
