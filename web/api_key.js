// The server's key, if it has one: kept while the tab is open, sent with every request of the page.
"use strict";

const apiKey = (() => {
  const STORAGE = "tandem-api-key";
  const field = document.getElementById("api-key");
  const callbacks = [];

  field.value = sessionStorage.getItem(STORAGE) ?? "";
  field.addEventListener("change", () => {
    field.removeAttribute("aria-invalid");
    if (field.value === "") sessionStorage.removeItem(STORAGE);
    else sessionStorage.setItem(STORAGE, field.value);
    for (const callback of callbacks) callback();
  });

  return {
    headers() {
      return field.value === "" ? {} : { Authorization: `Bearer ${field.value}` };
    },
    // The server wants a key, or another one.
    refused() {
      field.setAttribute("aria-invalid", "true");
      field.closest("details").open = true;
    },
    onChange(callback) {
      callbacks.push(callback);
    },
  };
})();
