// What GPU and CPU do now, how the strategy plans, and latencies, as tables of numbers.
import { make, setText } from "./dom.js";
import { boundOf } from "./tiers_rates.js";

const KINDS = {
  "gpu-only": "all of it in the gpu tier",
  "simple-offload": "attention of all decodes on the CPU, the GPU waits",
  "symmetric": "two halves, attention of all decodes on the CPU",
  "full-offload": "NEO's pipeline with all decodes in the cpu tier",
  "asymmetric": "NEO: a cohort of the cpu tier visits every layer beside the gpu tier's work",
  "async": "APEX: cohorts of the cpu tier join when the main sub-batch passes their layer",
};
const CHOOSES = {
  auto: "auto takes for each iteration the kind of plan that promises the most work in its predicted time.",
  apex: "apex takes for each iteration asymmetric or async, whichever promises more by its predicted time.",
  asymmetric: "asymmetric falls back to gpu-only where that does more by its predicted time.",
};

const percent = (share) => `${(100 * share).toFixed(0)} %`;
const rate = (value) => value.toFixed(value < 10 ? 1 : 0);
const milliseconds = (value) => value >= 1000 ? `${(value / 1000).toFixed(2)} s` : `${value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0)} ms`;

// Names and values, each value an element that stays.
class Values {
  constructor(names) {
    this.values = new Map();
    this.node = make("dl", { class: "values" }, ...Object.entries(names).map(([id, name]) => {
      const value = make("dd", { id, text: "–" });
      this.values.set(id, value);
      return make("div", {}, make("dt", { text: name }), value);
    }));
  }
  set(id, text) {
    setText(this.values.get(id), text);
  }
}

export class WorkPanel {
  constructor() {
    this.values = new Values({
      "gpu-busy": "compute stream busy", "cpu-busy": "CPU attention busy", "cpu-read": "read by CPU attention",
      "generated-rate": "tokens generated", "cpu-tier-share": "of which in the cpu tier",
      "prompt-rate": "prompt tokens computed", "iteration-rate": "iterations", "moved-rate": "tokens that changed tier",
    });
    this.bound = make("p", { id: "bound" });
    this.node = make("section", { class: "card", id: "work", "aria-label": "Now" }, make("h2", { text: "Now" }),
                     this.values.node, make("h3", { text: "What limits it" }), this.bound);
  }

  update(event, rates, waitShare) {
    setText(this.bound, boundOf(event, rates, waitShare));
    if (rates === null) return;
    const generated = rates.grown("generated_tokens");
    this.values.set("gpu-busy", percent(rates.share("gpu_busy_seconds")));
    this.values.set("cpu-busy", percent(rates.share("cpu_attention_busy_seconds")));
    this.values.set("cpu-read", `${(rates.perSecond("cpu_attention_kv_bytes") / 1e9).toFixed(2)} GB/s`);
    this.values.set("generated-rate", `${rate(rates.perSecond("generated_tokens"))} /s`);
    this.values.set("cpu-tier-share", generated > 0 ? percent(rates.grown("cpu_tier_tokens") / generated) : "–");
    this.values.set("prompt-rate", `${rate(rates.perSecond("prompt_tokens"))} /s`);
    this.values.set("iteration-rate", `${rate(rates.perSecond("iterations"))} /s`);
    this.values.set("moved-rate", `${rate(rates.perSecond("swapped_tokens"))} /s`);
  }
}

export class StrategyPanel {
  constructor() {
    this.name = make("h2", { text: "Strategy" });
    this.why = make("p", { class: "muted" });
    this.rows = make("tbody");
    this.values = new Values({ "predicted": "predicted iteration", "measured": "measured iteration",
                               "prediction-error": "prediction off by" });
    this.node = make("section", { class: "card", id: "strategy", "aria-label": "Strategy" }, this.name, this.why,
                     make("table", {}, make("caption", { text: "Iterations of the last minute" }), this.rows),
                     this.values.node);
  }

  update(event, minute) {
    setText(this.name, `Strategy: ${event.strategy}`);
    setText(this.why, CHOOSES[event.strategy] ?? "");
    if (minute === null) return;
    const all = Math.max(minute.grown("iterations"), 1);
    this.rows.replaceChildren(...minute.strategies().map(([name, count]) =>
      make("tr", {}, make("th", { scope: "row", text: name, title: KINDS[name] ?? name }),
           make("td", { text: count.toLocaleString("en-US") }), make("td", { text: percent(Math.min(count / all, 1)) }),
           make("td", { class: "what", text: KINDS[name] ?? "" }))));
    const predicted = minute.grown("predicted_seconds");
    const iterations = minute.grown("iterations");
    if (iterations <= 0) return;
    this.values.set("measured", milliseconds(1000 * minute.grown("gpu_busy_seconds") / iterations));
    this.values.set("predicted", predicted > 0 ? milliseconds(1000 * predicted / iterations) : "no costs are measured");
    this.values.set("prediction-error",
                    predicted > 0 ? percent(minute.grown("prediction_error_seconds") / predicted) : "–");
  }
}

const LATENCIES = { "time_to_first_token": "time to first token", "time_per_output_token": "time per output token",
                    "inter_token_latency": "between two tokens" };

export class LatencyPanel {
  constructor() {
    const head = ["", "p50", "p90", "p99", "seen"].map((text) =>
      text === "" ? make("td") : make("th", { scope: "col", text }));
    this.rows = Object.entries(LATENCIES).map(([id, name]) => {
      const cells = ["p50_ms", "p90_ms", "p99_ms", "count"].map((field) => [field, make("td", { text: "–" })]);
      const row = make("tr", { id: `latency-${id}` }, make("th", { scope: "row", text: name }),
                       ...cells.map(([, cell]) => cell));
      return { id, cells, row };
    });
    this.node = make("section", { class: "card", id: "latencies", "aria-label": "Latencies" },
                     make("h2", { text: "Latencies of the last minute" }),
                     make("table", {}, make("thead", {}, make("tr", {}, ...head)),
                          make("tbody", {}, ...this.rows.map(({ row }) => row))),
                     make("p", { class: "muted", text: "Since this view was opened, a minute at most." }));
  }

  update(lastMinute) {
    for (const { id, cells } of this.rows) {
      const summary = lastMinute[id];
      for (const [field, cell] of cells) {
        if (field === "count") setText(cell, String(summary.count));
        else setText(cell, summary.count > 0 ? milliseconds(summary[field]) : "–");
      }
    }
  }
}
