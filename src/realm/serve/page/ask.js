// The view "Ask": a question, its answer, the evidence, and the answer before the documents changed.

import { api, server } from "./api.js";
import { answerCard, evidenceList, hitList, prose, timings } from "./evidence.js";
import { byId, button, el, notice, own, show } from "./dom.js";
import { count, plural, probability } from "./format.js";
import { Place } from "./requests.js";
import { chooseCount, runFacts } from "./run-facts.js";
import { called, chooseThreshold, drawLeftOut, leftOut, startThreshold, threshold } from "./wishes.js";

const STARTS = [
  ["#explain", "Explain", "Hide words of a sentence and see which document helps to fill them in."],
  ["#documents?add=1", "Add documents", "Paste or upload text. It is searchable at once; nothing is trained."],
  ["#run", "This run", "What is served, what it reached, and the curves of its training."],
];
const UNTAUGHT =
  "This run’s reader was trained on documents alone, not on questions. Read the evidence, too.";
const place = new Place(byId("ask-result"));
let last = null; // {question, k, without, found, before}: the newest answer, and the one it is compared with
let without = []; // ids of the documents that are left out
const WRITING_MS = 60_000; // a language model is slow
let writes = ""; // the language model that writes prose
let newest = 0; // the corpus that the last response named

server.addEventListener("versions", ({ detail }) => {
  newest = detail.corpus;
  drawStale();
});

const linkTo = (question, k, without) =>
  `#ask?${new URLSearchParams([["q", question], ["k", k], ...without.map((id) => ["without", id])])}`;

const same = (one, other) => one.length === other.length && one.every((id, i) => id === other[i]);

/** The last question and its link, if its answer is of older documents than there are now; else null. */
export const stale = () =>
  last !== null && newest > last.found.versions.corpus
    ? { question: last.question, link: linkTo(last.question, last.k, last.without) }
    : null;

/** Show the view for what its link says. */
export async function showAsk(parameters) {
  const question = parameters.get("q") ?? "";
  if (question.trim() === "") return empty();
  without = leftOut(parameters);
  drawLeftOut(without, leaveOut);
  byId("question").value = question;
  const k = Number(parameters.get("k")) || Number(byId("ask-k").value) || 5;
  chooseCount(byId("ask-k"), k);
  document.title = `${question} – REALM`;
  const again = last !== null && last.question === question && last.k === k;
  if (again && same(last.without, without) && place.element.childElementCount) return;
  await ask(question, k, again && !same(last.without, without) ? last : null);
}

/** Ask the question of the page once more, without these documents and no others. */
function leaveOut(ids) {
  without = ids;
  drawLeftOut(ids, leaveOut);
  const question = last?.question ?? byId("question").value.trim();
  if (question) location.hash = linkTo(question, last?.k ?? Number(byId("ask-k").value), ids);
}

/** Ask the last question once more, and show both answers. */
export async function askAgain() {
  byId("question").value = last.question;
  await ask(last.question, last.k, last);
}

/** Ask the last question once more, for prose. */
const writeOut = () => ask(last.question, last.k, null, true);

async function ask(question, k, before, write = false) {
  const facts = await runFacts().catch(() => null);
  if (facts !== null && !facts.reader) return search(question, k);
  if (facts !== null) startThreshold(facts.abstain_below);
  writes = facts?.writes ?? "";
  const wish = { k, abstain_below: threshold(), exclude_documents: without };
  await place.fill(
    write ? `${writes} is writing …` : `Reading ${k === 1 ? "the nearest block" : `the nearest ${k} blocks`} …`,
    (how) => api.answer(question, write ? { ...wish, write, timeout_ms: WRITING_MS } : wish, how),
    (response) => {
      const found = response.answers[0];
      for (const item of found.evidence) called(item.doc_id, item.title);
      last = { question, k, without, found, before: before && { ...before, before: null } };
      return drawn(last, !facts?.without_questions);
    },
  );
  drawStale();
}

async function search(question, k) {
  const text =
    "This run has no reader yet: it finds documents for a question, and leaves the answer to you. Fine-tune it to get answers.";
  await place.fill(
    "Searching …",
    (how) => api.search(question, k, how),
    (response) => [notice(el("p", {}, text)), el("h2", {}, "Nearest blocks"), hitList(response.results[0])],
  );
}

function drawn({ found, before }, taught) {
  const cards = before === null ? answerCard(found, "Answer", threshold()) : comparison(before, last);
  const leave = (id) => leaveOut([...without.filter((other) => other !== id), id]);
  const untaught = taught ? null : el("p", { class: "about" }, UNTAUGHT);
  return [cards, untaught, prose(found, writes, writeOut), evidenceList(found, leave), timings(found)];
}

/** What an answer was given for, in a word: the documents left out, else the version of the corpus. */
const named = (asked, other) =>
  same(asked.without, other.without)
    ? `corpus version ${asked.found.versions.corpus}`
    : asked.without.length
      ? `without ${plural(asked.without.length, "document")}`
      : "with all documents";

/** Two answers to one question, the older one left. */
function comparison(before, now) {
  const changed = before.found.answer !== now.found.answer;
  const moved = `probability ${probability(before.found.p)} before, ${probability(now.found.p)} now`;
  const verdict = changed ? `The answer changed: ${moved}.` : `The answer is the same: ${moved}.`;
  return [
    el("p", { class: changed ? "verdict changed" : "verdict" }, verdict),
    el(
      "div",
      { class: "pair" },
      answerCard(before.found, `Before, ${named(before, now)}`, threshold()),
      answerCard(now.found, `Now, ${named(now, before)}`, threshold()),
    ),
  ];
}

function drawStale() {
  const text = el("p", {}, "The documents have changed since this question was answered.");
  const box = () => notice([text, button("Ask again and compare", askAgain, "primary")]);
  show(byId("ask-stale"), stale() === null ? null : box());
}

const begin = ([link, name, what]) => el("li", {}, el("a", { href: link }, name), el("p", {}, what));

async function empty() {
  if (place.element.childElementCount) return;
  const facts = await runFacts().catch(() => null);
  if (facts === null || place.element.childElementCount) return;
  startThreshold(facts.abstain_below);
  const { documents, blocks } = facts.corpus;
  const size =
    documents === blocks
      ? plural(documents, "document")
      : `${plural(documents, "document")} in ${count(blocks)} blocks`;
  const text = `${size}. An answer is a piece of one of them, word for word, shown with its place.`;
  const untaught = facts.without_questions ? el("p", { class: "about" }, UNTAUGHT) : null;
  const about = el("p", { class: "about" }, text);
  show(place.element, about, untaught, examples(facts.examples), el("ul", { class: "starts" }, STARTS.map(begin)));
}

/** Questions that this run has answered, each a link that asks it again. */
function examples(known) {
  if (!known.length) return null;
  const verdict = ({ correct }) =>
    correct === null ? null : el("span", { class: correct ? "right" : "wrong" }, correct ? "right" : "wrong");
  const rows = known.map((one) =>
    el(
      "li",
      {},
      el("a", { href: linkTo(one.question, Number(byId("ask-k").value) || 5, []) }, own(one.question)),
      el("span", { class: "given" }, own(one.answer || "abstained")),
      verdict(one),
    ),
  );
  return [el("h2", {}, "Asked when this run was evaluated"), el("ul", { class: "examples" }, rows)];
}

byId("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = byId("question").value.trim();
  if (!question) return byId("question").focus();
  const k = Number(byId("ask-k").value);
  if (last?.question === question && last.k === k && same(last.without, without)) {
    if (stale() !== null) return askAgain();
    last = null; // asked for once more: it is computed once more
  }
  const link = linkTo(question, k, without);
  if (location.hash !== link) location.hash = link;
  else ask(question, k, null);
});

chooseThreshold(() => {
  if (last !== null && place.element.querySelector(".answer")) show(place.element, drawn(last));
});
