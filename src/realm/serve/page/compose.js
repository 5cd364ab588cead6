// Adding and changing documents: pasted text or files, sent once, with what became of them.

import { api } from "./api.js";
import { button, el, loading, notice, show } from "./dom.js";
import { bytes, count, plural } from "./format.js";
import { refusalBox } from "./requests.js";
import { runFacts } from "./run-facts.js";
import { BadFiles, check, portions, readFiles } from "./upload.js";

/** The form for one document. ``given``: the document that is changed, or null for a new one. ``done(message, id)`` is called after a change; id: of the one document that can be shown, or null. */
export function documentForm(given, done, cancel) {
  const field = (id, label, hint, input) =>
    el(
      "div",
      { class: "field" },
      el("label", { for: id }, label),
      input,
      hint ? el("p", { class: "hint" }, hint) : null,
    );
  const id = el("input", { id: "new-id", type: "text", autocomplete: "off", required: true, readonly: given !== null });
  const title = el("input", { id: "new-title", type: "text", dir: "auto", autocomplete: "off" });
  const text = el("textarea", { id: "new-text", dir: "auto", rows: given === null ? 7 : 14, required: true });
  if (given !== null) [id.value, title.value, text.value] = [given.id, given.title, given.text];
  const said = el("div", { role: "status" });
  const send = el("button", { class: "primary" }, given === null ? "Add document" : "Save");
  const submit = async (event) => {
    event.preventDefault();
    const document = { id: id.value.trim(), title: title.value.trim(), text: text.value };
    if (await sendAll([document], given !== null, said, send, done)) event.target.reset();
  };
  return el(
    "form",
    { class: "card composer", submit },
    el("h2", {}, given === null ? "Paste text" : "Change the document"),
    el(
      "div",
      { class: "two" },
      field("new-id", "Id", given === null ? "Any name that is not taken" : null, id),
      field("new-title", "Title", null, title),
    ),
    field("new-text", "Text", "Plain text. It is searchable at once; nothing is trained.", text),
    said,
    el("div", { class: "line end" }, cancel ? button("Cancel", cancel) : null, send),
  );
}

/** The form for files. */
export function uploadForm(done) {
  const input = el("input", { id: "files", type: "file", multiple: true, accept: ".txt,.md,.jsonl", class: "unseen" });
  const said = el("div", { role: "status" });
  const chosen = el("div", {});
  const drop = el(
    "label",
    { for: "files", class: "drop" },
    el("strong", {}, "Choose files"),
    " or drop them here",
    el("span", { class: "hint" }, ".txt and .md: one document each. .jsonl: one a line, with id, title and text."),
  );
  const take = async (files) => {
    show(chosen);
    show(said, loading("Reading the files …"));
    try {
      const { limits } = await runFacts();
      const documents = await readFiles(files, limits);
      show(said);
      show(
        chosen,
        preview(documents, said, done, () => show(chosen)),
      );
    } catch (error) {
      if (!(error instanceof BadFiles)) return show(said, refusalBox(error));
      show(
        said,
        el(
          "div",
          { class: "notice bad" },
          el("h3", {}, "Nothing was added"),
          error.message.split("\n").map((line) => el("p", {}, line)),
        ),
      );
    } finally {
      input.value = "";
    }
  };
  input.addEventListener("change", () => take([...input.files]));
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => hover(event, drop, true));
  drop.addEventListener("dragleave", (event) => hover(event, drop, false));
  drop.addEventListener("drop", (event) => {
    hover(event, drop, false);
    take([...event.dataTransfer.files]);
  });
  return el("div", { class: "card composer" }, el("h2", {}, "Upload files"), input, drop, said, chosen);
}

function hover(event, drop, over) {
  event.preventDefault();
  drop.classList.toggle("over", over);
}

/** What is about to be added, and the button that does it. */
function preview(documents, said, done, forget) {
  const rows = documents
    .slice(0, 8)
    .map((row) =>
      el(
        "li",
        {},
        el("b", {}, row.title || row.id),
        el("span", { class: "id" }, row.id),
        el("span", { class: "weak" }, bytes(row.text.length)),
      ),
    );
  const more = documents.length > 8 ? el("li", { class: "weak" }, `and ${count(documents.length - 8)} more`) : null;
  const replace = el("input", { type: "checkbox", id: "replace" });
  const send = button(
    `Add ${plural(documents.length, "document")}`,
    async () => {
      if (await sendAll(documents, false, said, send, done, replace.checked)) forget();
    },
    "primary",
  );
  return [
    el("ul", { class: "chosen" }, rows, more),
    el("label", { class: "check", for: "replace" }, replace, "Replace documents whose id is taken"),
    el("div", { class: "line end" }, button("Discard them", forget), send),
  ];
}

/** Send documents in portions. Returns whether all of them were taken. ``replaceTaken``: what is there already is replaced. */
async function sendAll(documents, replacing, said, send, done, replaceTaken = false) {
  send.disabled = true;
  let stored = [];
  try {
    const { limits } = await runFacts();
    const problems = [];
    check(documents, limits, problems);
    if (problems.length) throw new BadFiles(problems);
    for (const portion of portions(documents, limits)) {
      const progress =
        documents.length > portion.length ? ` ${count(stored.length)} of ${count(documents.length)}` : "";
      show(said, loading(`Embedding and writing${progress} …`));
      stored = stored.concat(replacing ? (await api.replace(portion)).documents : await added(portion, replaceTaken));
    }
  } catch (error) {
    const part = stored.length
      ? notice(el("p", {}, `${plural(stored.length, "document")} were taken before that.`))
      : null;
    const box =
      error instanceof BadFiles
        ? el(
            "div",
            { class: "notice bad" },
            error.message.split("\n").map((line) => el("p", {}, line)),
          )
        : refusalBox(error);
    show(said, box, part);
    return false;
  } finally {
    send.disabled = false;
  }
  show(said);
  const [only] = stored;
  await done(outcome(stored, replacing), stored.length === 1 && only.blocks > 0 ? only.id : null);
  return true;
}

async function added(portion, replaceTaken) {
  try {
    return (await api.add(portion)).documents;
  } catch (error) {
    if (error.code !== "exists" || !replaceTaken) throw error;
  }
  const there = await Promise.all(portion.map(isThere));
  const fresh = portion.filter((_, i) => !there[i]);
  const taken = portion.filter((_, i) => there[i]);
  const stored = (await api.replace(taken)).documents;
  return fresh.length ? stored.concat((await api.add(fresh)).documents) : stored;
}

async function isThere(document) {
  try {
    await api.document(document.id);
    return true;
  } catch (error) {
    if (error.code === "unknown") return false;
    throw error;
  }
}

function outcome(stored, replacing) {
  const nothing = stored.filter((row) => row.blocks === 0).length;
  const one = stored.length === 1 ? `“${stored[0].id}”` : plural(stored.length, "document");
  const said = replacing
    ? `${one} ${stored.length === 1 ? "is" : "are"} changed`
    : `${one} ${stored.length === 1 ? "is" : "are"} searchable now`;
  return nothing
    ? `${said}. ${plural(nothing, "document")} brought no new text: other documents already hold it.`
    : `${said}.`;
}
