// Before the page is painted: the theme that was chosen, if any was. theme.js is what chooses.
"use strict";

try {
  const chosen = localStorage.getItem("tandem-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing has the system's theme.
}
