// The panels beside the conversation: on a narrow screen they lie over it, one at a time, and are closed at first.
import { byId } from "./dom.js";

const narrow = matchMedia("(max-width: 60rem)");
const panels = [
  { panel: byId("history"), toggle: byId("toggle-history"), always: true },
  { panel: byId("settings"), toggle: byId("toggle-settings"), always: false },
];

function setOpen(entry, open) {
  entry.panel.classList.toggle("closed", !open);
  entry.toggle.setAttribute("aria-expanded", String(open));
  if (!open || !narrow.matches) return;
  for (const other of panels) if (other !== entry) setOpen(other, false);
}

const isOpen = (entry) => !entry.panel.classList.contains("closed");

export function openSettings() {
  setOpen(panels[1], true);
}

// True if one was closed.
export function closePanels() {
  if (!narrow.matches) return false;
  const open = panels.filter(isOpen);
  for (const entry of open) {
    if (entry.panel.contains(document.activeElement)) entry.toggle.focus();
    setOpen(entry, false);
  }
  return open.length > 0;
}

export function startPanels() {
  for (const entry of panels) {
    entry.toggle.addEventListener("click", () => {
      setOpen(entry, !isOpen(entry));
      if (isOpen(entry) && narrow.matches) entry.panel.querySelector("button, input, textarea").focus();
    });
  }
  const arrange = () => {
    for (const entry of panels) setOpen(entry, !narrow.matches);
  };
  narrow.addEventListener("change", arrange);
  arrange();
}
