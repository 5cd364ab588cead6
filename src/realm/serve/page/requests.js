// What every view does around a request: one at a time, a word while it lasts, and an answer to each way it can fail.

import { Refused } from "./api.js";
import { button, loading, problem, show } from "./dom.js";

const TITLES = {
  gone: "The server does not answer",
  busy: "The server is busy",
  stopping: "The server is being stopped",
  unavailable: "The run cannot be read at the moment",
  not_trained: "This run cannot do that yet",
  token: "A token is needed",
  deadline: "That took too long",
  unknown: "There is no such document",
  exists: "That id is taken",
  last: "The last document cannot be deleted",
  too_large: "Too large",
  later: "The change is stored",
  invalid: "The request is not valid",
  endpoint: "The language model does not write",
  internal: "The server failed",
};
const AGAIN = ["gone", "busy", "stopping", "unavailable", "deadline", "endpoint", "internal"];

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?)]$/.test(text) ? "" : ".");

const titleOf = (error) => TITLES[error.code] ?? "The server refused";

/** A box for a refusal; ``again`` is offered where trying again may help. */
export function refusalBox(error, again) {
  if (!(error instanceof Refused)) throw error;
  const wait = error.retryAfter ? ` It asks to wait ${error.retryAfter} s.` : "";
  const said = error.code === "gone" ? null : sentence(error.message) + wait;
  return problem(titleOf(error), said, ...(again && AGAIN.includes(error.code) ? [button("Try again", again)] : []));
}

/** Runs requests into one place of the page; a newer one ends the one before. */
export class Place {
  constructor(element) {
    this.element = element;
    this.abort = null;
  }

  /** Show what ``draw(await ask({signal, waiting}))`` returns. Returns what was found, or null: overtaken, or refused (which is shown). */
  async fill(what, ask, draw) {
    this.stop();
    const abort = (this.abort = new AbortController());
    this.element.setAttribute("aria-busy", "true");
    show(this.element, loading(what));
    const waiting = (seconds) => show(this.element, loading(`The server is busy; trying again in ${seconds} s …`));
    try {
      const found = await ask({ signal: abort.signal, waiting });
      if (abort.signal.aborted) return null;
      show(this.element, draw(found));
      return found;
    } catch (error) {
      if (abort.signal.aborted) return null;
      show(
        this.element,
        refusalBox(error, () => this.fill(what, ask, draw)),
      );
      return null;
    } finally {
      if (this.abort === abort) this.element.setAttribute("aria-busy", "false");
    }
  }

  stop() {
    this.abort?.abort();
  }
}
