// The parameters of requests, as the settings panel has them; kept in this browser. What is empty is not sent: the
// server and its model decide.
import { byId } from "./dom.js";
import { keep, keptJson } from "./storage.js";

const STORAGE = "tandem-settings";
const NUMBERS = {
  "temperature": "temperature", "top-p": "top_p", "top-k": "top_k", "min-p": "min_p",
  "repetition-penalty": "repetition_penalty", "max-tokens": "max_completion_tokens", "seed": "seed",
};
const fields = ["system", ...Object.keys(NUMBERS)];

export function startSettings() {
  const saved = keptJson(STORAGE) ?? {};
  for (const id of fields) {
    if (typeof saved[id] === "string") byId(id).value = saved[id];
    byId(id).addEventListener("input", () => {
      keep(STORAGE, JSON.stringify(Object.fromEntries(fields.map((field) => [field, byId(field).value]))));
    });
  }
}

export function systemPrompt() {
  return byId("system").value.trim();
}

export function requestParameters() {
  const parameters = {};
  for (const [id, name] of Object.entries(NUMBERS)) {
    const value = byId(id).valueAsNumber;
    if (Number.isFinite(value)) parameters[name] = value;
  }
  return parameters;
}
