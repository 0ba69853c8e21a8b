// The parts of the page: groups of figures, and the claims.

/** A group of figures that differ in the setting: one is shown at a time. */
function startGroup(node) {
  const sections = [...node.querySelectorAll(":scope > section")];
  const members = sections.map((section) => figures[section.dataset.index]);
  const names = sections.map((section) => section.dataset.option);
  const unlike = distinct(names).length === names.length;
  const bar = html("div");
  node.prepend(bar);
  const begun = () => ({ name: sections[0].id, usual: {}, anchor: () => sections[state.member].id });
  let state = begun(); // and what the figures keep in it

  function show() {
    const section = sections[state.member];
    const plot = section.querySelector(".plot");
    sections.forEach((one) => { one.hidden = one !== section; });
    plot.replaceChildren();
    const rows = DRAW[members[state.member].kind](plot, members[state.member], state, members);
    section.querySelector(".as-csv").onclick = (event) => saveCsv(event, section.id, rows());
  }
  function start() {
    const keys = [...members.keys()];
    const asked = sections.findIndex((section) => section.id === anchorInAddress());
    initially(state, "member", keys, 0);
    if (asked >= 0) state.member = asked;
    const text = (k) => (unlike ? names[k] : members[k].title);
    bar.replaceChildren(controls(choice("setting", keys, state, "member", show, text)));
    show();
  }
  start();
  return { sections, restart() { state = begun(); start(); } };
}

const HEAD = ["chart", "line", "over", "at", "mean", "half of the 95 % interval"];

/** Text as a cell of a table, which a spreadsheet does not take for a formula. */
function cell(value) {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@]/.test(value.normalize("NFKC")) ? `'${value}` : value;
  return `"${text.replaceAll('"', '""')}"`;
}

function saveCsv(event, name, rows) {
  const lines = [HEAD, ...rows].map((row) => row.map(cell).join(","));
  const blob = new Blob([`\ufeff${lines.join("\r\n")}\r\n`], { type: "text/csv" });
  event.currentTarget.href = URL.createObjectURL(blob);
  event.currentTarget.download = `${name}.csv`;
}

/** The claims by verdict and by the words in them; what the address names is always there. */
function startClaims(section) {
  const rows = [...section.querySelectorAll("tbody > tr.claim-row")];
  const counts = new Map(distinct(rows.map((row) => row.dataset.verdict)).map((verdict) =>
    [verdict, rows.filter((row) => row.dataset.verdict === verdict).length]));
  const state = { name: "claims", usual: {}, anchor: () => "claims" };
  const bar = html("div");
  const none = html("p", { role: "status" }, "No claim is like that.");
  section.querySelector("table.claims").before(bar, none);
  const search = html("input", { type: "search", placeholder: "words of a claim",
    "aria-label": "Search the claims", oninput: () => { choose(state, "words", search.value); filter(); } });

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const said = row.textContent.toLowerCase();
      row.hidden = row.id !== anchorInAddress()
        && !((state.verdict === "all" || state.verdict === row.dataset.verdict)
          && words.every((word) => said.includes(word)));
    }
    none.hidden = rows.some((row) => !row.hidden);
  }
  function start() {
    const verdicts = ["all", ...counts.keys()];
    const text = (verdict) => `${verdict} ${counts.get(verdict) ?? rows.length}`;
    initially(state, "verdict", verdicts, "all");
    state.usual.words = "";
    search.value = settings.get("claims.words") ?? "";
    const chosen = controls(choice("verdict", verdicts, state, "verdict", filter, text), search);
    bar.replaceChildren(chosen);
    filter();
  }
  start();
  return { restart() { delete state.verdict; start(); } };
}

document.documentElement.classList.add("scripted");
const groups = [...document.querySelectorAll(".group")].map(startGroup);
const claims = [...document.querySelectorAll("#claims")].map(startClaims);

function showWhatIsNamed() {
  document.getElementById(anchorInAddress())?.scrollIntoView();
}
if (location.hash) showWhatIsNamed();
window.addEventListener("hashchange", () => { // a link on this page names a place alone
  if (location.hash.includes("?")) settings = inAddress();
  else writeAddress(anchorInAddress());
  [...groups, ...claims].forEach((part) => part.restart());
  showWhatIsNamed();
});
