// Runs before anything is drawn, so that a chosen theme never flashes. Without a choice the system's own is used.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("realm-theme");
  } catch {
    // storage may be forbidden; then there is no choice to remember
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
