// The picture that a block is of: fetched with the token of this tab, shown as a blob, named by its path.

import { api } from "./api.js";
import { el, own, show } from "./dom.js";

const ALTERNATIVE = 300;

/** A picture with its path; where it cannot be shown, the reason. ``text`` is what the block says of it, for who does not see it. */
export function picture(block, media, text) {
  const place = el("div", { class: "frame" });
  api.picture(block).then(
    (blob) => show(place, image(blob, text)),
    (error) => show(place, el("p", { class: "note" }, error.message)),
  );
  return el("figure", { class: "picture" }, place, el("figcaption", { class: "id" }, own(media)));
}

function image(blob, text) {
  const address = URL.createObjectURL(blob);
  const done = () => URL.revokeObjectURL(address);
  const points = Array.from(text);
  const alternative = points.length > ALTERNATIVE ? `${points.slice(0, ALTERNATIVE).join("")} …` : text;
  return el("img", { src: address, alt: alternative, load: done, error: done });
}
