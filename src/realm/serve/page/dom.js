// Elements. Whatever a document or a server says becomes a text node; nothing in this page ever turns text into HTML.

export const byId = (id) => document.getElementById(id);

/** One HTML element: attributes (null and false leave one out, functions listen to events), then children. */
export function el(name, attributes = {}, ...children) {
  return filled(document.createElement(name), attributes, children);
}

/** Text of a user or a document, such as a title: in the direction of its own script, whatever is around it. */
export const own = (text) => el("bdi", {}, text);

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
  return element;
}

/** Put these in the place of whatever an element held. */
export function show(element, ...children) {
  element.replaceChildren(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false),
  );
}

/** A share 0..1 as a bar; the number beside it is what screen readers say. */
export function bar(share, kind = "") {
  const fill = el("span", { class: `fill ${kind}` });
  fill.style.setProperty("width", `${(100 * Math.min(1, Math.max(0, share))).toFixed(1)}%`);
  return el("span", { class: "bar", "aria-hidden": "true" }, fill);
}

/** A signed value as a bar to the right (good) or left (bad) of the middle; ``most`` fills one side. */
export function signedBar(value, most) {
  const share = most > 0 ? Math.min(1, Math.abs(value) / most) : 0;
  const fill = el("span", { class: value < 0 ? "fill down" : "fill up" });
  fill.style.setProperty("width", `${(50 * share).toFixed(1)}%`);
  return el("span", { class: "bar signed", "aria-hidden": "true" }, fill);
}

/** A piece of text that was computed: a label, a number, and its bar. */
export function score(label, value, drawn, title) {
  return el("div", { title }, el("dt", {}, label), el("dd", {}, el("span", { class: "number" }, value), drawn));
}

export function loading(what) {
  return el("p", { class: "loading" }, el("span", { class: "spinner", "aria-hidden": "true" }), what);
}

/** A box that says what went wrong, with what can be done about it. */
export function problem(title, message, ...actions) {
  return el(
    "div",
    { class: "notice bad" },
    el("h2", {}, title),
    message ? el("p", {}, message) : null,
    actions.length ? el("div", { class: "line" }, actions) : null,
  );
}

/** A box that says something; ``kind`` good or bad colours it. */
export function notice(children, kind = "") {
  return el("div", { class: `notice ${kind}` }, children);
}

export function button(label, act, kind = "quiet boxed") {
  return el("button", { type: "button", class: kind, click: act }, label);
}

/** Copy text; where the browser has no clipboard for us (plain HTTP from afar), through a selection. */
export async function copy(text, pressed) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = el("textarea", { class: "unseen", readonly: true });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  const before = pressed.textContent;
  pressed.textContent = "Copied";
  setTimeout(() => (pressed.textContent = before), 1500);
}
