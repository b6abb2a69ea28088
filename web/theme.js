// Dark or light: as the system has it, until it is switched; switched back to the system's, it follows again.
import { keep } from "./storage.js";

const STORAGE = "tandem-theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");

function current() {
  return document.documentElement.dataset.theme ?? (systemDark.matches ? "dark" : "light");
}

export function startTheme(button) {
  const show = () => {
    button.setAttribute("aria-label", current() === "dark" ? "Light theme" : "Dark theme");
  };
  button.addEventListener("click", () => {
    const wanted = current() === "dark" ? "light" : "dark";
    const isSystems = wanted === (systemDark.matches ? "dark" : "light");
    if (isSystems) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = wanted;
    keep(STORAGE, isSystems ? null : wanted);
    show();
  });
  systemDark.addEventListener("change", show);
  show();
}
