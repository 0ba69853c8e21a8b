"use strict";
// Shows what the server's folder says. All of it is text of others: it is only ever put in as text.
const EVERY = 2000, SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function element(name, text, cls) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (cls) made.className = cls;
  return made;
}

function cell(text, name, cls) {
  const made = element("td", text, cls);
  if (name) made.dataset.name = name;
  return made;
}

const number = (value, digits) => typeof value === "number" ? value.toFixed(digits) : "";

function bytes(value) {
  if (typeof value !== "number") return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let k = 0;
  while (value >= 1000 && k < units.length - 1) { value /= 1000; k += 1; }
  return value.toFixed(k ? 1 : 0) + " " + units[k];
}

function strip(marks, round) {
  const made = element("td", undefined, "strip");
  marks.forEach(([sign, how, by, outcome], k) => {
    const one = element("span", sign, how === "good" || how === "bad" ? how : "open");
    one.title = "round " + (round - marks.length + 1 + k) + ": " + outcome + (by ? ", " + by + " s late" : "");
    made.append(one);
  });
  return made;
}

function showSites(found) {
  byId("metric").textContent = found.metric || "";
  byId("sites").tBodies[0].replaceChildren(...found.sites.map((site) => {
    const row = element("tr");
    const late = site.late + (site.last_late_by === null ? "" : " (last +" + number(site.last_late_by, 1) + " s)");
    const measured = found.metric === null ? undefined : site.measured[found.metric];
    const trouble = /late|not connected|quarantined|left/.test(site.doing);
    row.append(
      cell(site.site), cell(site.doing, "", trouble ? "bad" : ""), strip(site.strip, found.round),
      cell(site.on_time + " of " + site.asked, "in time"), cell(late, "late"),
      cell(number(site.straggler_prob, 2), "p"), cell(number(measured, 4), found.metric || ""));
    return row;
  }));
}

function drawn(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function showCurve(found) {
  const points = found.curve.filter(([, value]) => value !== null);
  byId("curve-title").textContent = found.metric ? found.metric + " by round" : "How it learns";
  if (!points.length) {
    byId("curve").replaceChildren(element("p", "Nothing was measured yet.", "caption"));
    return;
  }
  const W = 560, H = 220, left = 62, bottom = 26;
  const values = points.map(([, value]) => value), last = points[points.length - 1];
  let low = Math.min(...values), high = Math.max(...values);
  if (high - low < 1e-9) { low -= 0.5; high += 0.5; }
  const rounds = Math.max(found.round, 1);
  const x = (t) => left + (W - left - 12) * t / rounds;
  const y = (v) => 12 + (H - bottom - 12) * (high - v) / (high - low);
  const svg = drawn("svg", {viewBox: `0 0 ${W} ${H}`, role: "img"});
  svg.append(drawn("title", {}, `${found.metric} after round ${last[0]}: ${last[1].toFixed(4)}`));
  for (const v of [low, (low + high) / 2, high]) {
    svg.append(drawn("line", {x1: left, x2: W - 12, y1: y(v), y2: y(v), class: "gridline"}));
    svg.append(drawn("text", {x: left - 6, y: y(v) + 4, "text-anchor": "end"}, v.toFixed(3)));
  }
  for (const t of [0, rounds]) {
    svg.append(drawn("text", {x: x(t), y: H - 6, "text-anchor": t ? "end" : "start"}, t ? "round " + t : "0"));
  }
  svg.append(drawn("polyline", {points: points.map(([t, v]) => x(t) + "," + y(v)).join(" ")}));
  svg.append(drawn("circle", {cx: x(last[0]), cy: y(last[1]), r: 4}));
  byId("curve").replaceChildren(svg);
}

function showHappened(found) {
  const items = found.happenings.slice().reverse().map((one) => {
    const item = element("li");
    item.append(element("span", one.round === null ? "before" : "round " + one.round, "when"));
    item.append(element("span", one.site + " " + one.what));
    return item;
  });
  byId("happened").replaceChildren(...(items.length ? items : [element("li", "Nothing out of the ordinary.")]));
}

function showRounds(found) {
  const rounds = found.rounds.filter((one) => one.seconds !== null).slice(-12).reverse();
  byId("rounds").tBodies[0].replaceChildren(...rounds.map((one) => {
    const row = element("tr");
    row.append(...[
      one.round, number(one.seconds, 1), number(one.deadline, 1), one.asked + " of " + one.sites, one.answered,
      one.late, bytes(one.bytes_sent), bytes(one.bytes_received),
    ].map((text) => cell(String(text))));
    return row;
  }));
}

function trouble(words) {
  byId("trouble").textContent = words;
  byId("trouble").hidden = !words;
}

async function look() {
  try {
    const answer = await fetch("now.json", {cache: "no-store"});
    if (!answer.ok) throw new Error("it says " + answer.status);
    const found = await answer.json();
    trouble("");
    document.title = found.federation + " · fedcommons";
    byId("federation").textContent = found.federation || "A federation";
    byId("state").textContent = found.state[0].toUpperCase() + found.state.slice(1) + ".";
    showSites(found);
    showCurve(found);
    showHappened(found);
    showRounds(found);
  } catch (error) {
    trouble("This is not fresh: fedcommons federate watch cannot be reached (" + error.message + ").");
  }
  setTimeout(look, EVERY);
}

look();
