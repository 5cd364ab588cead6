// The frame: which view a link names, the theme, the token, whether the server is there.

import { api, server, setToken } from "./api.js";
import { showAsk } from "./ask.js";
import { showDocuments } from "./documents.js";
import { byId, el, problem, show } from "./dom.js";
import { showExplain } from "./explain.js";
import { offerCounts, runFacts } from "./run-facts.js";
import { showRun } from "./run.js";

const VIEWS = {
  ask: [showAsk, "question"],
  explain: [showExplain, "sentence"],
  documents: [showDocuments, "find"],
  run: [showRun, null],
};
const THEMES = ["auto", "light", "dark"];
const LOOK_EVERY = 2000;
let shown = null;

/** The view and the parameters of the address: #documents?id=a%2Fb. */
function address() {
  const [name, query = ""] = location.hash.slice(1).split(/\?(.*)/s);
  return [Object.hasOwn(VIEWS, name) ? name : "ask", new URLSearchParams(query)];
}

function route() {
  if (location.hash === "#main") return;
  const [name, parameters] = address();
  for (const view of Object.keys(VIEWS)) byId(`view-${view}`).hidden = view !== name;
  for (const link of document.querySelectorAll(".top nav a")) {
    const here = link.hash === `#${name}`;
    if (here) document.title = `${link.textContent} – REALM`;
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const before = shown;
  shown = name;
  if (before !== null && before !== name) {
    window.scrollTo(0, 0);
    byId(`title-${name}`).focus({ preventScroll: true });
  }
  byId("main").setAttribute("aria-busy", "true");
  Promise.resolve(VIEWS[name][0](parameters)).finally(() => byId("main").removeAttribute("aria-busy"));
}

/** The name of the run, and the numbers of blocks that can be asked for. */
async function begin() {
  const facts = await runFacts();
  byId("run-name").textContent = facts.run;
  byId("state").textContent = `REALM ${facts.realm}`;
  const most = Math.min(facts.limits.k, Math.max(1, facts.index.blocks));
  offerCounts(byId("ask-k"), most, 5);
  offerCounts(byId("explain-k"), most, 8);
  for (const id of ["question", "sentence"]) byId(id).maxLength = facts.limits.text_chars;
}

async function start() {
  try {
    await begin();
    show(byId("alarm"));
  } catch (error) {
    if (error.code !== "gone" && error.code !== "token")
      show(byId("alarm"), problem("The run cannot be shown", error.message));
    if (error.code === "token") return byId("main").removeAttribute("aria-busy");
  }
  route();
}

function drawTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  byId("theme-name").textContent = name;
}

byId("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
  drawTheme(next);
  try {
    localStorage.setItem("realm-theme", next);
  } catch {
    // forbidden storage: the choice lasts as long as the page
  }
});

server.addEventListener("versions", ({ detail }) => {
  byId("versions").textContent = `weights ${detail.params} · index ${detail.index} · corpus ${detail.corpus}`;
});

server.addEventListener("token", ({ detail: refused }) => {
  byId("token-form").hidden = false;
  show(byId("alarm"), refused ? el("p", { class: "notice bad" }, "The server does not know this token.") : null);
  byId("token").focus();
});

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken(byId("token").value);
  byId("token").value = "";
  byId("token-form").hidden = true;
  start();
});

server.addEventListener("gone", () => {
  show(
    byId("alarm"),
    problem("The server does not answer", "It may have been stopped. This page reconnects by itself."),
  );
  const look = () => api.alive().catch(() => setTimeout(look, LOOK_EVERY));
  setTimeout(look, LOOK_EVERY);
});

server.addEventListener("back", () => start());

document.addEventListener("keydown", (event) => {
  const writing = event.target.matches("input, textarea, select");
  if (event.key === "/" && shown !== null && !writing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    if (VIEWS[shown][1] === null) {
      history.pushState(null, "", "#ask");
      route();
    }
    byId(VIEWS[shown][1])?.focus();
    byId(VIEWS[shown][1])?.select();
  }
  const asker = event.target.closest?.(".asker");
  if (event.key === "Enter" && asker && event.target.matches("textarea") && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    asker.requestSubmit();
  }
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

addEventListener("hashchange", route);
drawTheme(document.documentElement.dataset.theme ?? "auto");
start();
