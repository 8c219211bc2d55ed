// Colours of the page: those of the system, or the user's choice, before anything is drawn.
const wbTheme = (() => {
  "use strict";
  const THEMES = ["system", "light", "dark"], root = document.documentElement;
  const stored = () => { try { return localStorage.getItem("wb-theme"); } catch { return null; } };
  const current = () => root.dataset.theme || "system";
  function set(theme) {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  }
  function next() {
    set(THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length]);
    try { localStorage.setItem("wb-theme", current()); } catch { /* Without storage, the choice ends with the page. */ }
  }
  set(stored());
  return { current, next };
})();
