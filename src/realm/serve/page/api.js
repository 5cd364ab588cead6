// Requests to the server: JSON both ways, the token of this tab, what a refusal says, waiting while the server is busy.

const TOKEN = "realm-token";
const PATIENCE = 3;
const LONGEST_WAIT = 5;

/** "versions" (after every response that names them), "gone", "back", "token". */
export const server = new EventTarget();

let token = remembered();
let gone = false;

/** An answer that is none. ``status`` is 0 where no server answered. */
export class Refused extends Error {
  constructor(status, code, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

function remembered() {
  try {
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return "";
  }
}

/** Use a token from now on, until the tab is closed. */
export function setToken(text) {
  token = text.trim();
  try {
    sessionStorage.setItem(TOKEN, token);
  } catch {
    // forbidden storage: it stays in memory
  }
}

const say = (name, detail) => server.dispatchEvent(new CustomEvent(name, { detail }));

/** What the server sent, whatever its status. Raises Refused where it does not answer. */
async function sent(method, path, body, signal, accept = "application/json") {
  const headers = { accept };
  if (body !== undefined) headers["content-type"] = "application/json";
  if (token) headers.authorization = `Bearer ${token}`;
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reached(false);
    throw new Refused(0, "gone", "The server does not answer.");
  }
  reached(true);
  return response;
}

/** One request. Raises Refused. */
async function once(method, path, body, signal) {
  const response = await sent(method, path, body, signal);
  const found = await response.json().catch(() => null);
  if (response.ok && found !== null) {
    if (found.versions) say("versions", found.versions);
    return found;
  }
  throw refused(response, found);
}

/** The picture that a block is of. Raises Refused. */
async function picture(block) {
  const response = await sent("GET", `v1/pictures/${block}`, undefined, undefined, "image/*");
  if (response.ok) return response.blob();
  throw refused(response, await response.json().catch(() => null));
}

function refused(response, found) {
  const problem = found?.error ?? { code: "internal", message: `The server answered ${response.status}.` };
  if (response.status === 401) say("token", token !== "");
  return new Refused(
    response.status,
    problem.code,
    problem.message,
    Number(response.headers.get("retry-after")) || null,
  );
}

function reached(answered) {
  if (answered === !gone) return;
  gone = !answered;
  say(gone ? "gone" : "back");
}

/** A request that changes nothing: repeated a few times while the server is busy. ``waiting(seconds)`` is told before each wait. */
async function asking(method, path, body, { signal, waiting } = {}) {
  for (let tries = 0; ; tries++) {
    try {
      return await once(method, path, body, signal);
    } catch (error) {
      const wait = error.retryAfter;
      if (error.code !== "busy" || tries >= PATIENCE || !wait || wait > LONGEST_WAIT) throw error;
      waiting?.(wait);
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
      signal?.throwIfAborted();
    }
  }
}

// In the query, where any id can stand: browsers take "." and ".." out of a path.
const place = (id) => `v1/documents?id=${encodeURIComponent(id)}`;

export const api = {
  answer: (question, wishes, how) => asking("POST", "v1/answer", { questions: [question], ...wishes }, how),
  search: (text, k, how) => asking("POST", "v1/search", { texts: [text], k }, how),
  explain: (body, how) => asking("POST", "v1/explain", body, how),
  run: (how) => asking("GET", "v1/run", undefined, how),
  list: (start, limit, how) => asking("GET", `v1/documents?start=${start}&limit=${limit}`, undefined, how),
  document: (id, how) => asking("GET", place(id), undefined, how),
  // Changes are sent once: whether a change whose answer was lost has happened, only a look can tell.
  add: (documents) => once("POST", "v1/documents", { documents }),
  replace: (documents) => once("PUT", "v1/documents", { documents }),
  remove: (id) => once("POST", "v1/documents/remove", { ids: [id] }),
  picture,
  alive: () => once("GET", "healthz"),
};
