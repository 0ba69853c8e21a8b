const N_COLORS = Number(
  getComputedStyle(document.documentElement).getPropertyValue("--series-count"));
const WIDE = 480; // from this width on, labels stand beside the lines' ends
const LABEL_HEIGHT = 20;
const color = (k) => `var(--series-${k % N_COLORS})`;
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
/** A mean and ± half of its interval, large ones both to the place of the interval's second digit. */
function meanAndHalf(mean, half) {
  if (!present(half)) return { value: digits(mean), spread: "" };
  if (half === 0 || Math.max(Math.abs(mean), half) < 10) return { value: digits(mean), spread: `± ${digits(half)}` };
  const places = Math.min(4, 1 - Math.floor(Math.log10(half)));
  const shown = Math.max(0, places);
  const text = (value) => (Math.round(value * 10 ** places) / 10 ** places).toLocaleString("en",
    { minimumFractionDigits: shown, maximumFractionDigits: shown }).replace("-", "−");
  return { value: text(mean), spread: `± ${text(half)}` };
}

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

/** An axis for all these series with their bands: logarithmic if they span decades above 0. Bands of
 *  proportions, which lie in [0, 1], may leave it where runs are few: their axis does not, and is never
 *  logarithmic. */
function valueScale(series, { proportion = false } = {}) {
  const inside = (value) => (proportion ? Math.max(0, Math.min(1, value)) : value);
  const edges = (side) => series.flatMap(({ mean, half }) => mean.map((value, k) =>
    (present(value) ? inside(value + side * (half[k] ?? 0)) : null)).filter(present));
  const [smallest, low, high] = [least(edges(0)), least(edges(-1)), greatest(edges(1))];
  if (!Number.isFinite(low)) return linearScale(0, 1, 5);
  if (!proportion && smallest > 0 && high / smallest > 30) return logScale(smallest / 1.2, high * 1.05);
  const margin = (high - low) * 0.03;
  return linearScale(low - margin, high + margin, 5);
}

// The address: #SECTION?NAME.FIELD=VALUE&..., in which whatever differs from the usual stands, so that
// a reload or a link shows the same.

const inAddress = () => new URLSearchParams(location.hash.split("?")[1] ?? "");
let settings = inAddress();

function writeAddress(anchor) {
  const said = settings.toString();
  history.replaceState(null, "", `#${encodeURIComponent(anchor)}${said ? `?${said}` : ""}`);
}
const anchorInAddress = () => decodeURIComponent(location.hash.slice(1).split("?")[0]);

/** What a state's field is at first: one of these values, by the address or as usual. */
function initially(state, field, values, usual) {
  state.usual[field] = usual;
  if (present(state[field])) return;
  const said = settings.get(`${state.name}.${field}`);
  state[field] = values.find((value) => String(value) === said) ?? usual;
}

function choose(state, field, value) {
  state[field] = value;
  const key = `${state.name}.${field}`;
  if (value === state.usual[field]) settings.delete(key);
  else settings.set(key, value);
  writeAddress(state.anchor());
}

/** The labels of a state's hidden lines. */
function hiddenLines(state) {
  const key = `${state.name}.hide`;
  return {
    has: (label) => settings.getAll(key).includes(label),
    toggle(label) {
      const others = settings.getAll(key).filter((one) => one !== label);
      const was = this.has(label);
      settings.delete(key);
      for (const one of was ? others : [...others, label]) settings.append(key, one);
      writeAddress(state.anchor());
    },
  };
}

// Controls

let idCount = 0;

/** Buttons of which one is chosen; nothing where there is nothing to choose. */
function choice(legend, values, state, field, redraw, text = String) {
  if (values.length < 2) return null;
  const name = `choice-${idCount++}`;
  const buttons = values.map((value) => {
    const onchange = () => { choose(state, field, value); redraw(); };
    const input = html("input", { type: "radio", name, onchange });
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
    /** Beside x, at y or ending there if `above`; where neither side has room, at `under`. */
    show(caption, rows, { x, y, under, above = false }) {
      node.replaceChildren(html("table", {}, html("caption", {}, caption), ...rows.map((row) =>
        html("tr", {},
          html("th", { scope: "row" }, row.color ? key(row) : null, row.label),
          html("td", {}, row.value), html("td", {}, row.spread ?? "")))));
      node.hidden = false;
      const [after, before] = [x + 14, x - 14 - node.offsetWidth];
      const fits = after + node.offsetWidth <= container.clientWidth;
      const beside = fits ? after : before;
      node.style.left = `${Math.max(0, beside)}px`;
      node.style.top = beside < 0 ? `${under}px` : `${above ? y - node.offsetHeight : y}px`;
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
function layOut(width, series, y, { integer, xLog, labelled }) {
  const wide = width >= WIDE;
  const direct = labelled && wide && series.length * LABEL_HEIGHT < 260;
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
  const { px, py, xs, top, bottom, height } = frame;
  const apart = least(xs.slice(1).map((x, k) => x - xs[k])) / 2; // of neighbours, a half
  const cursor = svg("g");
  picture.append(cursor);
  let index = -1;

  /** The place of the value that a series has at this x, or has not measured elsewhere. */
  function nearest(s, x) {
    const gaps = s.xs.map((own, k) => (present(s.mean[k]) ? Math.abs(own - x) : Infinity));
    const k = gaps.indexOf(least(gaps));
    return gaps[k] <= (s.ownPlaces ? Infinity : apart) ? k : -1;
  }
  function leave() {
    cursor.replaceChildren();
    box.hide();
  }
  function moveTo(k) {
    index = Math.max(0, Math.min(xs.length - 1, k));
    const value = xs[index];
    const rows = series.map((s) => ({ ...s, k: nearest(s, value) }))
      .filter((s) => present(s.mean[s.k]))
      .sort((a, b) => b.mean[b.k] - a.mean[a.k]);
    const dot = (s) => svg("circle",
      { class: "dot", "--c": s.color, cx: px(s.xs[s.k]), cy: py(s.mean[s.k]), r: 4.5 });
    const rule = svg("line", { class: "cursor", x1: px(value), x2: px(value), y1: top, y2: bottom });
    cursor.replaceChildren(rule, ...rows.map(dot));
    const high = greatest(rows.map((s) => py(s.mean[s.k]))) < (top + bottom) / 2; // keep clear
    box.show(cursorText(value), rows.map((s) => (
      { ...s, ...meanAndHalf(s.mean[s.k], s.half[s.k]) })),
    { x: px(value), y: high ? bottom - 8 : top + 8, above: high, under: height });
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

/** A chart; `shared.hidden` are the labels of hidden lines, `shared.redraw` draws all anew. Without
 *  labels where the title says what its only line is. */
function lineChart(options) {
  const { cursorText, shared, integer, xLog, labelled = true } = options;
  const axis = { integer, xLog, labelled };
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
    if (labelled) placeLabels(frame, picture);
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
    shared.hidden.toggle(label);
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
    /** What is shown, as rows of a table: chart, line, over what, where, mean, half of the interval. */
    rows: () => series.filter((s) => !shared.hidden.has(s.label)).flatMap((s) => s.xs.flatMap((x, k) =>
      (present(s.mean[k]) ? [[title.textContent, s.label, options.xLabel, x, s.mean[k], s.half[k] ?? ""]] : []))),
    show(heading, newSeries, scale) {
      title.textContent = heading.replaceAll(" = ", "\u00a0=\u00a0");
      series = newSeries.filter((s) => s.mean.some(present));
      y = scale;
      draw();
    },
  };
}
