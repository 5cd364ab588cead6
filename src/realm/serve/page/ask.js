// The view "Ask": a question, its answer, the evidence, and the answer before the documents changed.

import { api, server } from "./api.js";
import { answerCard, evidenceList, hitList, timings } from "./evidence.js";
import { byId, button, el, notice, show } from "./dom.js";
import { count, plural, probability } from "./format.js";
import { Place } from "./requests.js";
import { chooseCount, runFacts } from "./run-facts.js";

const STARTS = [
  ["#explain", "Explain", "Hide words of a sentence and see which document helps to fill them in."],
  ["#documents?add=1", "Add documents", "Paste or upload text. Answers know it at once; nothing is trained."],
  ["#run", "This run", "What is served, what it reached, and the curves of its training."],
];
const place = new Place(byId("ask-result"));
let last = null; // {question, k, found}: the newest answer
let newest = 0; // the corpus that the last response named

server.addEventListener("versions", ({ detail }) => {
  newest = detail.corpus;
  drawStale();
});

const linkTo = (question, k) => `#ask?${new URLSearchParams({ q: question, k })}`;

/** The last question and its link, if its answer is of older documents than there are now; else null. */
export const stale = () =>
  last !== null && newest > last.found.versions.corpus
    ? { question: last.question, link: linkTo(last.question, last.k) }
    : null;

/** Show the view for what its link says. */
export async function showAsk(parameters) {
  const question = parameters.get("q") ?? "";
  if (question.trim() === "") return empty();
  byId("question").value = question;
  const k = Number(parameters.get("k")) || Number(byId("ask-k").value) || 5;
  chooseCount(byId("ask-k"), k);
  document.title = `${question} – REALM`;
  if (last !== null && last.question === question && last.k === k && place.element.childElementCount) return;
  await ask(question, k, null);
}

/** Ask the last question once more, and show both answers. */
export async function askAgain() {
  const before = last.found;
  byId("question").value = last.question;
  await ask(last.question, last.k, before);
}

async function ask(question, k, before) {
  const facts = await runFacts().catch(() => null);
  if (facts !== null && !facts.reader) return search(question, k);
  await place.fill(
    `Reading ${k === 1 ? "the nearest block" : `the nearest ${k} blocks`} …`,
    (how) => api.answer(question, k, how),
    (response) => {
      const found = response.answers[0];
      last = { question, k, found };
      return drawn(found, before);
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

function drawn(found, before) {
  const cards = before === null ? answerCard(found) : comparison(before, found);
  return [cards, evidenceList(found), timings(found)];
}

/** Two answers to one question, older documents left. */
function comparison(before, now) {
  const changed = before.answer !== now.answer;
  const moved = `probability ${probability(before.p)} before, ${probability(now.p)} now`;
  const verdict = changed ? `The answer changed: ${moved}.` : `The answer is the same: ${moved}.`;
  return [
    el("p", { class: changed ? "verdict changed" : "verdict" }, verdict),
    el(
      "div",
      { class: "pair" },
      answerCard(before, `Before, corpus version ${before.versions.corpus}`),
      answerCard(now, `Now, corpus version ${now.versions.corpus}`),
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
  const { documents, blocks } = facts.corpus;
  const size =
    documents === blocks
      ? plural(documents, "document")
      : `${plural(documents, "document")} in ${count(blocks)} blocks`;
  const text = `${size}. An answer is a piece of one of them, word for word; where it stands is shown with it.`;
  show(place.element, el("p", { class: "about" }, text), el("ul", { class: "starts" }, STARTS.map(begin)));
}

byId("ask-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = byId("question").value.trim();
  if (!question) return byId("question").focus();
  const k = Number(byId("ask-k").value);
  if (last?.question === question && last.k === k) {
    if (stale() !== null) return askAgain();
    last = null; // asked for once more: it is computed once more
  }
  const link = linkTo(question, k);
  if (location.hash !== link) location.hash = link;
  else ask(question, k, null);
});
