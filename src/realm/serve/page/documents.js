// The view "Documents": a list in pages, search by meaning, and what can be done to them. One document alone is in document.js.

import { api, server } from "./api.js";
import { askAgain, stale } from "./ask.js";
import { documentForm, uploadForm } from "./compose.js";
import { showDocument } from "./document.js";
import { byId, button, el, notice, own, show } from "./dom.js";
import { documentLink, hitList } from "./evidence.js";
import { count, plural } from "./format.js";
import { Place } from "./requests.js";
import { runFacts } from "./run-facts.js";

const PAGE = 20;
const FOUND = 20;
const place = new Place(byId("documents-main"));

server.addEventListener("versions", again);

/** Show the view for what its link says: one document, a search, or a page of the list. */
export function showDocuments(parameters) {
  say(null);
  again();
  const id = parameters.get("id");
  if (id !== null) return showDocument(place, id, parameters, changed);
  const find = parameters.get("find") ?? "";
  if (find.trim()) return showFound(find);
  return showList(Math.max(0, Number(parameters.get("start")) || 0), parameters.get("add") !== null);
}

/** A sentence above the view, read out, and a link to the document it speaks of. */
function say(message, id = null) {
  const link = id === null ? null : [" ", el("a", { href: documentLink(id) }, "Show it")];
  show(byId("documents-note"), message === null ? null : notice(el("p", {}, message, link), "good"));
}

/** Documents have changed: say so, and show the list as it is now. */
async function changed(message, id = null) {
  runFacts({ fresh: true }).catch(() => null);
  const list = "#documents";
  if (location.hash !== list && !location.hash.startsWith(`${list}?start=`)) history.pushState(null, "", list);
  await showList(0, false);
  say(message, id);
  again();
  byId("documents-note").scrollIntoView({ block: "nearest" });
}

/** Offers the last question once more, once documents have changed since it was answered. */
function again() {
  const old = stale();
  const follow = () => {
    location.hash = old.link;
    askAgain();
  };
  const text = () => el("p", {}, "Your last question was answered before this change: ", el("b", {}, own(old.question)));
  show(
    byId("documents-again"),
    old === null ? null : notice([text(), button("Ask it again and compare", follow, "primary")]),
  );
}

async function showList(start, composing) {
  await place.fill(
    "Fetching the list …",
    (how) => api.list(start, PAGE, how),
    (found) => [tools(composing), listed(found, start)],
  );
}

function tools(composing, find = "") {
  const field = el("input", {
    id: "find",
    type: "search",
    dir: "auto",
    placeholder: "Find documents by what they say",
    autocomplete: "off",
  });
  field.value = find;
  const search = (event) => {
    event.preventDefault();
    location.hash = field.value.trim()
      ? `#documents?${new URLSearchParams({ find: field.value.trim() })}`
      : "#documents";
  };
  const forms = el("div", { class: "forms" });
  const open = button("Add documents", () => {
    const opening = forms.hidden;
    forms.hidden = !opening;
    open.setAttribute("aria-expanded", String(opening));
    if (opening && !forms.childElementCount) show(forms, documentForm(null, changed), uploadForm(changed));
    if (opening) byId("new-id").focus({ preventScroll: true });
  });
  open.className = "primary";
  open.setAttribute("aria-expanded", "false");
  forms.hidden = true;
  if (composing) queueMicrotask(() => open.click());
  return [
    el(
      "form",
      { class: "line tools", role: "search", submit: search },
      el("label", { for: "find", class: "unseen" }, "Find documents"),
      field,
      el("button", { class: "quiet boxed" }, "Find"),
      open,
    ),
    forms,
  ];
}

function listed(found, start) {
  const last = start + found.documents.length;
  const rows = found.documents.map((row) =>
    el(
      "li",
      {},
      el("a", { href: `#documents?${new URLSearchParams({ id: row.id })}` }, own(row.title || "untitled")),
      el("span", { class: "id" }, own(row.id)),
    ),
  );
  const to = (first) => (first > 0 ? `#documents?start=${first}` : "#documents");
  const link = (label, first, usable) =>
    usable
      ? el("a", { class: "button quiet boxed", href: to(first) }, label)
      : el("span", { class: "button quiet boxed off", "aria-disabled": "true" }, label);
  if (!rows.length)
    return el("p", { class: "about" }, start > 0 ? "There is no such page of the list." : "There are no documents.");
  const pages = el(
    "nav",
    { class: "line between", "aria-label": "Pages of the list" },
    link("Earlier", Math.max(0, start - PAGE), start > 0),
    link("Later", last, found.next !== null),
  );
  return [
    el("p", { class: "about" }, `${count(start + 1)} to ${count(last)} of ${plural(found.total, "document")}`),
    el("ul", { class: "list" }, rows),
    start > 0 || found.next !== null ? pages : null,
    found.not_read.length ? unread(found.not_read) : null,
  ];
}

function unread(files) {
  const rows = files.map((file) => el("li", {}, own(file.path), el("span", { class: "id" }, file.reason)));
  const heading = el("summary", {}, `Not read: ${plural(files.length, "file")}`);
  return el("details", {}, heading, el("ul", { class: "list" }, rows));
}

async function showFound(text) {
  const most = await runFacts().then(
    (facts) => Math.min(FOUND, facts.index.blocks),
    () => FOUND,
  );
  await place.fill(
    "Searching …",
    (how) => api.search(text, most, how),
    (response) => [
      tools(false, text),
      el("p", { class: "about" }, "Nearest blocks, best first. ", el("a", { href: "#documents" }, "Back to the list")),
      hitList(response.results[0]),
    ],
  );
}
