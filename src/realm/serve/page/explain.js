// The view "Explain": what each document does for the hidden words of a sentence.

import { api } from "./api.js";
import { bar, byId, el, notice, own, score, signedBar } from "./dom.js";
import { clipped, probability, short, signed } from "./format.js";
import { Place } from "./requests.js";
import { chooseCount } from "./run-facts.js";

const MASK = "[MASK]";
const EXCERPT = 220;
const LEAST = { r: 0.1, utility: 1 }; // that fill a bar: what hardly matters must not look large
const place = new Place(byId("explain-result"));
let shown = "";

/** Show the view for what its link says: x the sentence, y the hidden words (once for each [MASK]), k documents. */
export function showExplain(parameters) {
  const text = parameters.get("x") ?? "";
  if (!text.trim()) return undefined;
  const targets = parameters.getAll("y").filter((target) => target.trim());
  byId("sentence").value = text;
  byId("targets").value = targets.join(" | ");
  const k = Number(parameters.get("k")) || Number(byId("explain-k").value) || 8;
  chooseCount(byId("explain-k"), k);
  const wanted = String(parameters);
  if (wanted === shown && place.element.childElementCount) return undefined;
  return explain(wanted, { text, targets, k });
}

async function explain(wanted, body) {
  shown = (await place.fill("Reading the sentence beside each document …", (how) => api.explain(body, how), drawn))
    ? wanted
    : "";
}

function drawn(found) {
  const gain = Math.log(found.p_y) - Math.log(found.p_y_null);
  const most = (key) => Math.max(...found.candidates.map((item) => Math.abs(item[key] ?? 0)));
  const scale = { r: Math.max(LEAST.r, most("r")), utility: Math.max(LEAST.utility, most("utility")) };
  return [
    el(
      "article",
      { class: "card answer" },
      el("h2", { class: "kicker" }, "Filled in"),
      el("p", { class: "cloze", dir: "auto" }, filledIn(found)),
      el(
        "dl",
        { class: "scores" },
        score(
          "With documents p(y|x)",
          short(found.p_y),
          bar(found.p_y),
          "Likelihood of the hidden words, over all documents",
        ),
        score(
          "With none p(y|null, x)",
          short(found.p_y_null),
          bar(found.p_y_null, "second"),
          "Likelihood of the hidden words, alone",
        ),
        Number.isFinite(gain)
          ? score(
              "Gain in log p",
              signed(gain),
              signedBar(gain, Math.max(Math.abs(gain), 5)),
              "log p(y|x) − log p(y|null, x)",
            )
          : null,
      ),
      predictions(found),
    ),
    el("h2", {}, "Document by document"),
    el(
      "ol",
      { class: "evidence candidates" },
      found.candidates.map((item) => candidate(item, scale)),
    ),
    el(
      "p",
      { class: "note" },
      "p(z|x): weight of a document for this sentence. p(y|z, x): how likely it makes the hidden words. r(z): what training would do to its " +
        "score; above 0 it is drawn nearer, below 0 pushed away. Utility: log p(y|z, x) against reading nothing. " +
        "A reader that points counts a part of a name for the name where the model fills in, and p(y|x) does not.",
    ),
  ];
}

function filledIn(found) {
  const pieces = found.text.split(MASK);
  return pieces.flatMap((piece, i) => (i === 0 ? [piece] : [el("mark", {}, found.targets[i - 1] ?? MASK), piece]));
}

function predictions(found) {
  if (!found.predictions.length) return null;
  const items = found.predictions.map((item) =>
    el("li", {}, el("span", { class: "word", dir: "auto" }, item.text), bar(item.p), el("span", { class: "number" }, short(item.p))),
  );
  return [el("h3", { class: "small" }, "The model would fill in"), el("ol", { class: "predictions" }, items)];
}

function candidate(item, scale) {
  const text = Array.from(item.text);
  const long = text.length > EXCERPT;
  return el(
    "li",
    { class: item.null ? "null" : null },
    el(
      "h3",
      {},
      item.null ? "No document" : own(item.title || "untitled"),
      item.null ? null : el("span", { class: "id" }, `block ${item.block_id}`),
    ),
    item.null ? el("p", { class: "block weak" }, "What the model knows by itself.") : null,
    !item.null && !long ? el("p", { class: "block", dir: "auto" }, item.text) : null,
    long ? el("details", { class: "block", dir: "auto" }, el("summary", {}, clipped(text, EXCERPT)), el("p", { dir: "auto" }, item.text)) : null,
    el(
      "dl",
      { class: "scores four" },
      score("p(z|x)", probability(item.p_z), bar(item.p_z), "Weight of this document for the sentence"),
      score(
        "p(y|z, x)",
        short(item.p_y_given_z),
        bar(item.p_y_given_z, "second"),
        "Likelihood of the hidden words beside this document",
      ),
      score(
        "r(z)",
        signed(item.r),
        signedBar(item.r ?? 0, scale.r),
        "Gradient of log p(y|x) by the score of this document",
      ),
      score(
        "Utility",
        signed(item.utility),
        signedBar(item.utility ?? 0, scale.utility),
        "log p(y|z, x) − log p(y|null, x)",
      ),
    ),
  );
}

const targets = () =>
  byId("targets")
    .value.split("|")
    .map((target) => target.trim())
    .filter(Boolean);

/** Why a sentence cannot be sent, or null. */
function complaint(text, given) {
  const masks = text.split(MASK).length - 1;
  if (masks === 0)
    return "Hide words first: select them and press “Hide the selected words”, or write [MASK] in their place.";
  if (given.length && given.length !== masks)
    return `The sentence hides ${masks} places, so give the hidden words of each, with | between them.`;
  return null;
}

byId("explain-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = byId("sentence").value.trim();
  const given = targets();
  const wrong = complaint(text, given);
  if (wrong !== null) {
    place.stop();
    place.element.replaceChildren(notice(el("p", {}, wrong)));
    return byId("sentence").focus();
  }
  const parameters = new URLSearchParams({ x: text });
  for (const target of given) parameters.append("y", target);
  parameters.set("k", byId("explain-k").value);
  shown = "";
  const link = `#explain?${parameters}`;
  if (location.hash !== link) location.hash = link;
  else explain(String(parameters), { text, targets: given, k: Number(byId("explain-k").value) });
});

byId("hide-selection").addEventListener("click", () => {
  const field = byId("sentence");
  const { selectionStart: from, selectionEnd: to, value } = field;
  const words = value.slice(from, to).trim();
  if (words && !words.includes(MASK)) {
    const place = value.slice(0, from).split(MASK).length - 1;
    const known = targets();
    if (known.length === value.split(MASK).length - 1)
      byId("targets").value = [...known.slice(0, place), words, ...known.slice(place)].join(" | ");
    field.setRangeText(
      MASK,
      from + value.slice(from, to).indexOf(words),
      from + value.slice(from, to).indexOf(words) + words.length,
      "end",
    );
  }
  field.focus();
});
