// The load shown in the page's head: read from /metrics once a second while the page is visible.
"use strict";

(() => {
  const PERIOD_MS = 1000;
  let previous = null;
  let refusedKey = null;  // asked once

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
    document.getElementById(id).textContent = text;
  }

  function update(values) {
    const usage = values.get("vllm:kv_cache_usage_perc");
    if (usage === undefined) return show("strip-running", "loading");
    show("strip-running", values.get("vllm:num_requests_running"));
    show("strip-waiting", values.get("vllm:num_requests_waiting"));
    document.getElementById("strip-kv").value = usage;
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
    document.getElementById("strip-kv").value = 0;
    previous = null;
  }

  async function poll() {
    const headers = apiKey.headers();
    if (document.hidden) {
      previous = null;
    } else if (refusedKey !== (headers.Authorization ?? "")) {
      try {
        const response = await fetch("metrics", { cache: "no-store", headers });
        if (response.status === 401) {
          refusedKey = headers.Authorization ?? "";
          showNone("needs a key");
        } else {
          update(parseMetrics(await response.text()));
        }
      } catch {
        showNone("offline");
      }
    }
    setTimeout(poll, PERIOD_MS);
  }

  poll();
})();
