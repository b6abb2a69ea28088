// The load in the page's head, and whether the server is there: read from /metrics once a second while the page is
// visible.
import { apiKey } from "./api_key.js";
import { byId, setText } from "./dom.js";

const PERIOD_MS = 1000;
let previous = null;
let refusedKey = null;  // asked once
let online = true;
const callbacks = [];

// Sum over all label sets of each metric that is not a histogram's part.
function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line.startsWith("#")) continue;
    const name = line.slice(0, line.search(/[{ ]/));
    const value = Number(line.slice(line.lastIndexOf(" ") + 1));
    values.set(name, (values.get(name) ?? 0) + value);
  }
  return values;
}

function show(id, text) {
  setText(byId(id), String(text));
}

function update(values) {
  const usage = values.get("vllm:kv_cache_usage_perc");
  if (usage === undefined) return show("strip-running", "loading");
  show("strip-running", values.get("vllm:num_requests_running"));
  show("strip-waiting", values.get("vllm:num_requests_waiting"));
  byId("strip-kv").value = usage;
  show("strip-kv-text", `${(usage * 100).toFixed(usage < 0.1 ? 1 : 0)} %`);
  const now = { time: performance.now(), tokens: values.get("vllm:generation_tokens_total") };
  if (previous !== null && now.time > previous.time) {
    const rate = (now.tokens - previous.tokens) * 1000 / (now.time - previous.time);
    show("strip-rate", rate.toFixed(rate < 10 ? 1 : 0));
  }
  previous = now;
}

// What was seen last says nothing of a server that has gone, or that does not say.
function showNone(why) {
  show("strip-running", why);
  for (const id of ["strip-waiting", "strip-kv-text", "strip-rate"]) show(id, "–");
  byId("strip-kv").value = 0;
  previous = null;
}

function setOnline(now) {
  if (now === online) return;
  online = now;
  for (const callback of callbacks) callback(online);
}

async function poll() {
  const headers = apiKey.headers();
  if (document.hidden) {
    previous = null;
  } else if (refusedKey !== (headers.Authorization ?? "")) {
    try {
      const response = await fetch("metrics", { cache: "no-store", headers });
      setOnline(true);
      if (response.status === 401) {
        refusedKey = headers.Authorization ?? "";
        showNone("needs a key");
      } else {
        update(parseMetrics(await response.text()));
      }
    } catch {
      showNone("offline");
      setOnline(false);
    }
  }
  setTimeout(poll, PERIOD_MS);
}

// callback(online): the server has gone, or is back.
export function startStrip(callback) {
  callbacks.push(callback);
  poll();
}
