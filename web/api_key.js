// The server's key, if it has one: kept while the tab is open, sent with every request of the page.
import { byId } from "./dom.js";
import { openSettings } from "./panels.js";

const STORAGE = "tandem-api-key";
const field = byId("api-key");
const callbacks = [];

field.value = sessionStorage.getItem(STORAGE) ?? "";
field.addEventListener("change", () => {
  field.removeAttribute("aria-invalid");
  if (field.value === "") sessionStorage.removeItem(STORAGE);
  else sessionStorage.setItem(STORAGE, field.value);
  for (const callback of callbacks) callback();
});

export const apiKey = {
  headers() {
    return field.value === "" ? {} : { Authorization: `Bearer ${field.value}` };
  },
  // The server wants a key, or another one.
  refused() {
    if (field.getAttribute("aria-invalid") === "true") return;
    field.setAttribute("aria-invalid", "true");
    openSettings();
  },
  onChange(callback) {
    callbacks.push(callback);
  },
};
