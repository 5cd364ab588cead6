// The view "This run": what is served, and what it reached.

import { byId, el, notice } from "./dom.js";
import { count, percent } from "./format.js";
import { Place } from "./requests.js";
import { runFacts } from "./run-facts.js";

const place = new Place(byId("run-main"));

/** Show the view, from numbers as they are now. */
export async function showRun() {
  await place.fill("Reading the run …", (how) => runFacts({ fresh: true, ...how }), drawn);
}

function drawn(facts) {
  return [
    facts.reader
      ? null
      : notice(
          el(
            "p",
            {},
            "This run has no reader yet: it finds documents and explains sentences, but does not answer questions.",
          ),
        ),
    tiles(facts),
    results(facts.results),
    el("p", { class: "note" }, "How its training went is in report.html of the run (realm report)."),
  ];
}

function tiles({ corpus, index, versions, realm }) {
  const tile = (name, value, note) =>
    el("div", {}, el("dt", {}, name), el("dd", { class: "value" }, value), el("dd", { class: "note" }, note));
  const missing = corpus.unsearchable ? `${count(corpus.unsearchable)} not searchable yet` : "all of them searchable";
  return el(
    "dl",
    { class: "tiles" },
    tile("Documents", count(corpus.documents), `corpus version ${versions.corpus}`),
    tile("Blocks", count(corpus.blocks), missing),
    tile(
      "Index",
      count(index.generation),
      `generation; ${count(index.blocks)} vectors of ${index.dim} dimensions, made at step ${count(index.step)}`,
    ),
    tile("Weights", count(versions.params), `generation of the networks; REALM ${realm}`),
  );
}

/** One row per stage; empty columns are left out. */
function results(rows) {
  const depths = [...new Set(rows.flatMap((row) => Object.keys(row.recall_gold ?? row.recall ?? {})))].sort(
    (a, b) => a - b,
  );
  const rate = (value) => (Number.isFinite(value) ? percent(value) : null);
  const interval = (pair) =>
    Array.isArray(pair) ? el("span", { class: "interval" }, `${percent(pair[0])} to ${percent(pair[1])}`) : null;
  const columns = [
    ...depths.map((depth) => [`Recall@${depth}`, (row) => rate((row.recall_gold ?? row.recall)?.[depth])]),
    ["EM", (row) => (rate(row.em) === null ? null : [rate(row.em), interval(row.em_interval)])],
    ["F1", (row) => (rate(row.f1) === null ? null : [rate(row.f1), interval(row.f1_interval)])],
    ["Questions", (row) => (Number.isFinite(row.n) ? count(row.n) : null)],
  ].filter(([, cell]) => rows.some((row) => cell(row) !== null));
  if (!rows.length || !columns.length) return null;
  const head = el(
    "tr",
    {},
    el("td", {}),
    columns.map(([name]) => el("th", { scope: "col" }, name)),
  );
  const body = rows.map((row) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, row.title),
      columns.map(([, cell]) => el("td", {}, cell(row) ?? "–")),
    ),
  );
  return [
    el("h2", {}, "Results"),
    el("p", { class: "note" }, "Every stage; rates in percent, with 95 % intervals."),
    el(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Results" },
      el("table", {}, el("thead", {}, head), el("tbody", {}, body)),
    ),
  ];
}
