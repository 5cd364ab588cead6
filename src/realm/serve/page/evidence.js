// Answers and the blocks they come from, with the answer marked where it stands.

import { bar, button, copy, el, own, score } from "./dom.js";
import { milliseconds, probability } from "./format.js";
import { picture } from "./pictures.js";
import { sureness } from "./wishes.js";

const QUOTED = 140;
/** Characters of the quotation that are given up for it to begin and end between words; scripts without spaces are cut where it falls. */
const LONGEST_WORD = 30;

/** Text with [start, end) marked. Offsets count code points, as everything the server says does. */
export function marked(text, start, end, kind = "") {
  const points = Array.from(text);
  const usable = Number.isInteger(start) && Number.isInteger(end) && 0 <= start && start < end && end <= points.length;
  if (!usable) return [text];
  const part = (from, to) => points.slice(from, to).join("");
  return [part(0, start), el("mark", { class: kind }, part(start, end)), part(end)];
}

const same = (one, other) => one.trim().toLowerCase() === other.trim().toLowerCase();

/** The title, or the name of the file that a row without one stands in. */
const named = (item) => item.title || item.doc_id.replace(/#[^#]*$/, "").split("/").pop() || item.doc_id;

export const documentLink = (id, from, to) =>
  `#documents?${new URLSearchParams({ id, ...(from === undefined ? {} : { from, to }) })}`;

/** The answer itself: text, how sure, where from. ``heading`` names it. Below the threshold ``below`` it abstains, and the best guess is hidden. */
export function answerCard(found, heading, below) {
  const text = answerText(found, heading);
  if (sureness(found) >= below) return el("article", { class: "card answer" }, text);
  const what = Number.isFinite(found.confidence) ? "confidence" : "probability";
  const why = `${what} ${probability(sureness(found))}, below ${below.toFixed(2)}`;
  return el(
    "article",
    { class: "card answer" },
    el("h2", { class: "kicker" }, heading),
    el("p", { class: "said weak" }, found.level === "nothing" ? "Nothing here is about that" : "I am not sure"),
    el("p", { class: "held" }, `${found.level === "nothing" ? "N" : "The passage below comes closest; n"}o answer is claimed: ${why}.`),
    el("details", { class: "guess" }, el("summary", {}, "Show the best guess"), answerText({ ...found, level: "" }, "Best guess")),
  );
}

function answerText(found, heading) {
  const best = found.evidence.find((item) => same(item.answer, found.answer)) ?? found.evidence[0];
  return [
    el("h2", { class: "kicker" }, heading),
    el("p", { class: found.answer ? "said" : "said weak", dir: "auto" }, wording(found)),
    best ? el("p", { class: "from" }, "from ", el("a", { href: markedAt(best) }, own(best.title || best.doc_id))) : null,
    el(
      "dl",
      { class: "scores" },
      score(
        "Probability p(y|x)",
        probability(found.p),
        bar(found.p),
        "Of this answer, among all spans of the blocks read",
      ),
      Number.isFinite(found.confidence)
        ? score(
            "Confidence",
            probability(found.confidence),
            bar(found.confidence),
            "Probability that this answer is right, as calibrated on questions with known answers",
          )
        : null,
    ),
    best ? el("div", { class: "line" }, citation(best, found)) : null,
  ];
}

/** The words asked for; where the question asks for more than a span, the sentence or list with them marked, after yes or no. */
function wording(found) {
  if (!found.answer) return ["no answer"];
  const said = { yes: "Yes: ", no: "No: " }[found.said] ?? (found.level === "probably" ? "Probably: " : "");
  if (found.kind === "span" || !found.shown) return said + found.answer;
  const at = Array.from(found.shown.slice(0, Math.max(0, found.shown.indexOf(found.answer)))).length;
  return [said, ...marked(found.shown, at, at + Array.from(found.answer).length)];
}

/** Prose of the language model ``writes`` with what it cites; where there is none yet, a button that calls ``write()``. */
export function prose(found, writes, write) {
  if (!writes) return null;
  const note = found.note ? el("p", { class: "note" }, found.note) : null;
  if (!found.prose.length) return el("div", { class: "prose" }, button(`Let ${writes} write it out`, write), note);
  const claim = ({ text, cites, supported }) => [
    supported ? text : el("mark", { class: "other", title: "Not in the evidence it cites" }, text),
    ` ${cites.map((number) => `[${number}]`).join("")} `,
  ];
  const about = found.prose.every((one) => one.supported) ? null : el("p", { class: "note" }, "Underlined: not in the evidence cited.");
  const heading = el("h2", {}, `Written by ${writes}`);
  return el("section", { class: "plain-section" }, heading, el("p", { dir: "auto" }, found.prose.map(claim)), about);
}

/** Embedding, search and reading, in milliseconds. */
export function timings(found) {
  const parts = [
    ["embedding", found.timings_ms.embed],
    ["search", found.timings_ms.search],
    ["reading", found.timings_ms.read],
  ];
  return el("p", { class: "note" }, parts.map(([name, value]) => `${name} ${milliseconds(value)}`).join(" · "));
}

/** The blocks read, best first. ``leaveOut(id)`` is called when a document is to be left out. */
export function evidenceList(found, leaveOut) {
  const items = found.evidence.map((item) => evidence(item, found, leaveOut));
  return el("section", { class: "plain-section" }, el("h2", {}, "Evidence"), el("ol", { class: "evidence" }, items));
}

function evidence(item, found, leaveOut) {
  const agrees = same(item.answer, found.answer);
  return el(
    "li",
    {},
    el("h3", {}, el("a", { href: markedAt(item) }, own(named(item))), el("span", { class: "id" }, own(item.doc_id))),
    item.heading ? el("p", { class: "note" }, own(item.heading)) : null,
    item.path.length ? path(item.path) : null,
    item.also_in.length ? el("p", { class: "note" }, "Also in ", item.also_in.map((id, at) => [at ? ", " : "", own(id)])) : null,
    item.media ? picture(item.block_id, item.media, item.text) : null,
    el("p", { class: "block", dir: "auto" }, marked(item.text, item.start, item.end, agrees ? "" : "other")),
    el(
      "dl",
      { class: "scores" },
      score("Document p(z|x)", probability(item.p_z), bar(item.p_z), "Weight of this block among those read"),
      score(
        "Span",
        probability(item.p_span),
        bar(item.p_span, "second"),
        "Probability of the marked words, among all spans of the blocks read",
      ),
    ),
    el(
      "div",
      { class: "line" },
      el("a", { class: "button quiet boxed", href: markedAt(item) }, "Show in document"),
      button("Leave out and ask again", () => leaveOut(item.doc_id)),
      citation(item, found),
    ),
  );
}

/** How a link led to the block: from the page that the question found to this one. */
const path = (titles) =>
  el("p", { class: "note" }, "Linked from ", own(titles[0]), titles.slice(1).map((title) => [" → ", own(title)]));

const markedAt = (item) => documentLink(item.doc_id, item.doc_start + item.start, item.doc_start + item.end);

function citation(item, found) {
  const { params, index, corpus } = found.versions;
  const source = `${named(item)} (${item.doc_id}, block ${item.block_id})`;
  const text = `“${quote(item)}” ${source}; REALM, weights ${params}, index ${index}, corpus ${corpus}`;
  return button("Copy citation", (event) => copy(text, event.currentTarget));
}

/** The answer with some words around it. */
function quote(item) {
  const points = Array.from(item.text);
  const from = Math.max(0, item.start - QUOTED);
  const to = Math.min(points.length, item.end + QUOTED);
  let left = from;
  let right = to;
  while (left > 0 && left < item.start && points[left - 1] !== " ") left++;
  while (right < points.length && right > item.end && points[right] !== " ") right--;
  if (left - from > LONGEST_WORD) left = from;
  if (to - right > LONGEST_WORD) right = to;
  return `${left > 0 ? "… " : ""}${points.slice(left, right).join("")}${right < points.length ? " …" : ""}`;
}

/** Blocks found for a text, where a run has no reader. */
export function hitList(hits) {
  const items = hits.map((hit) =>
    el(
      "li",
      {},
      el(
        "h3",
        {},
        el("a", { href: documentLink(hit.doc_id) }, own(named(hit))),
        hit.heading ? el("span", { class: "note" }, own(hit.heading)) : null,
        el("span", { class: "id" }, own(hit.doc_id)),
      ),
      hit.media ? picture(hit.block_id, hit.media, hit.text) : null,
      el("p", { class: "block", dir: "auto" }, hit.text),
    ),
  );
  return el("ol", { class: "evidence" }, items);
}
