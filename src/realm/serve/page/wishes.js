// What the asker wishes of every answer, for as long as the tab is open: how sure it must be, and which documents are left out.

import { byId, button, el, show } from "./dom.js";

const BELOW = "realm-below";
const below = byId("ask-below");
const titles = new Map();
let chosen = false; // by the asker, in this tab

/** The threshold below which answers are marked as abstained. */
export const threshold = () => Number(below.value) / 100;

/** How sure an answer is: its confidence; its probability where the run was not calibrated. */
export const sureness = (found) => (Number.isFinite(found.confidence) ? found.confidence : found.p);

function draw() {
  byId("ask-below-said").textContent = Number(below.value) === 0 ? "off" : `${below.value} %`;
}

function remembered() {
  try {
    return sessionStorage.getItem(BELOW);
  } catch {
    return null; // forbidden storage: the choice lasts as long as the page
  }
}

/** Let the threshold be chosen; ``changed()`` is called when it was. */
export function chooseThreshold(changed) {
  chosen = remembered() !== null;
  below.value = remembered() ?? "0";
  draw();
  below.addEventListener("input", () => {
    chosen = true;
    draw();
    try {
      sessionStorage.setItem(BELOW, below.value);
    } catch {
      // forbidden storage
    }
    changed();
  });
}

/** Begin with the threshold that the run's own questions have shown, unless another was chosen. */
export function startThreshold(share) {
  if (chosen) return;
  below.value = String(Math.round(share * 100));
  draw();
}

/** Documents of a link that are left out. */
export const leftOut = (parameters) => [...new Set(parameters.getAll("without"))].filter((id) => id !== "");

/** Remember what a document is called, for when it is left out. */
export const called = (id, title) => title && titles.set(id, title);

/** Show which documents are left out; ``change(ids)`` is called with those that are to be, when some are taken back. */
export function drawLeftOut(ids, change) {
  const chip = (id) =>
    el(
      "li",
      {},
      el("span", {}, titles.has(id) ? [titles.get(id), el("span", { class: "id" }, id)] : id),
      el(
        "button",
        {
          type: "button",
          "aria-label": `Use ${titles.get(id) || id} again`,
          title: "Use it again",
          click: () => change(ids.filter((other) => other !== id)),
        },
        "×",
      ),
    );
  const all = ids.length > 1 ? button("Use all again", () => change([]), "quiet") : null;
  const label = el("span", { id: "without-said" }, "Left out:");
  const chips = el("ul", { class: "chips", "aria-labelledby": "without-said" }, ids.map(chip));
  show(byId("ask-without"), ids.length ? el("div", { class: "line" }, label, chips, all) : null);
}
