// One document: its blocks, a marked place in it, changing it, deleting it.

import { api } from "./api.js";
import { documentForm } from "./compose.js";
import { button, byId, copy, el, show } from "./dom.js";
import { marked } from "./evidence.js";
import { plural } from "./format.js";
import { picture } from "./pictures.js";
import { refusalBox } from "./requests.js";

/** Show a document in ``place``. ``parameters`` may mark code points [from, to); ``changed(message)`` is called when it was changed or deleted. */
export async function showDocument(place, id, parameters, changed) {
  const number = (name) => (parameters.has(name) ? Number(parameters.get(name)) : null);
  const range = [number("from"), number("to")];
  const shown = await place.fill(
    "Fetching the document …",
    (how) => api.document(id, how),
    (found) => drawn(found, range, changed, () => showDocument(place, id, parameters, changed)),
  );
  if (!shown) place.element.prepend(back());
  if (shown) document.title = `${shown.title || id} – REALM`;
  const mark = place.element.querySelector("mark");
  if (mark) mark.scrollIntoView({ block: "center" });
}

const back = () => el("p", {}, el("a", { href: "#documents" }, "← All documents"));

function drawn(found, range, changed, redraw) {
  const said = el("div", { role: "status" });
  const { corpus } = found.versions;
  const page = el("article", { class: "card document" });
  const edit = () => {
    show(page, documentForm({ id: found.id, title: found.title, text: whole(found.blocks) }, changed, redraw));
    byId("new-text").focus();
  };
  show(
    page,
    el(
      "header",
      {},
      el("h2", { dir: "auto" }, found.title || "untitled"),
      el(
        "p",
        { class: "note" },
        el("span", { class: "id" }, found.id),
        ` ${plural(found.blocks.length, "block")}, corpus version ${corpus}`,
      ),
    ),
    shownOf(found.blocks),
    found.blocks.map((block) => part(block, range)),
    said,
    el(
      "div",
      { class: "line end" },
      button("Copy citation", (event) =>
        copy(`${found.title || "untitled"} (${found.id}); REALM, corpus ${corpus}`, event.currentTarget),
      ),
      button("Change", edit),
      button("Delete", (event) => remove(found, said, event.currentTarget, changed), "danger"),
    ),
  );
  return [back(), page];
}

/** The picture that the document is, if it is one. */
const shownOf = ([first]) => (first?.media ? picture(first.block_id, first.media, first.text) : null);

/** A block, with as much of the marked range as lies in it. */
function part(block, [from, to]) {
  const start = from === null ? -1 : Math.max(0, from - block.start);
  const end = to === null ? -1 : Math.min(Array.from(block.text).length, to - block.start);
  return el(
    "div",
    { class: "part" },
    el("span", { class: "number", title: "Block" }, String(block.block_id)),
    el("p", { dir: "auto" }, marked(block.text, start, end)),
  );
}

/** The text that the blocks were cut from. Between two of them stood nothing but white space; its kind is not kept, its length is. */
function whole(blocks) {
  let text = "";
  let end = 0;
  for (const block of blocks) {
    const gap = block.start - end;
    text += (text === "" || gap <= 0 ? "" : gap === 1 ? " " : "\n\n") + block.text;
    end = block.start + Array.from(block.text).length;
  }
  return text;
}

async function remove(found, said, pressed, changed) {
  if (!(await confirmed(`Delete “${found.title || found.id}”? No answer will hold it any more.`)))
    return pressed.focus();
  pressed.disabled = true;
  try {
    await api.remove(found.id);
  } catch (error) {
    pressed.disabled = false;
    return show(said, refusalBox(error));
  }
  return changed(`“${found.title || found.id}” is deleted.`);
}

/** Ask before something that cannot be taken back. */
function confirmed(question) {
  const dialog = byId("confirm");
  byId("confirm-text").textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true }),
  );
}
