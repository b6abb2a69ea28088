// The last iteration in lanes, and as a file for Perfetto.
import { button, make, setText } from "./dom.js";

const ORDER = ["gpu", "riders", "cpu attention", "copy: KV", "copy: rows out", "copy: rows in", "engine"];
const LABELS = { gpu: "compute stream", engine: "engine thread" };

const MIN_EDGED = 0.006;

// Lanes of shards have their number behind the name.
const laneKind = (lane) => lane.name.replace(/ \d+$/, "");
const rank = (lane) => (ORDER.indexOf(laneKind(lane)) + ORDER.length) % ORDER.length;
const byRank = (a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name, undefined, { numeric: true });

function labelOf(lane) {
  const kind = laneKind(lane);
  return (LABELS[kind] ?? kind) + lane.name.slice(kind.length);
}

// Which color a span has: what it does, without its layer.
function kindOf(name) {
  if (name.startsWith("wait")) return "wait";
  if (name.includes("attention")) return "attention";
  if (name.includes("projection") || name.startsWith("graph")) return "linear";
  if (name.includes("logits") || name.startsWith("sampling") || name.startsWith("embedding")) return "ends";
  return "other";
}

const endOf = (lanes) => Math.max(1, ...lanes.flatMap((lane) => lane.spans.map(([, begin, length]) => begin + length)));

// Share of the iteration that the compute stream waited for CPU attention; null without a compute stream.
export function waitShareOf(lanes) {
  const compute = lanes.find((lane) => lane.name === "gpu" || lane.name === "gpu 0");
  if (!compute) return null;
  const waited = compute.spans.filter(([name]) => name.startsWith("wait for cpu attention"));
  return waited.reduce((sum, [, , length]) => sum + length, 0) / endOf(lanes);
}

// Trace Event Format.
export function traceOf(lanes) {
  const events = [{ ph: "M", pid: 1, name: "process_name", args: { name: "tandem" } }];
  lanes.forEach((lane, index) => {
    const tid = index + 1;
    events.push({ ph: "M", pid: 1, tid, name: "thread_name", args: { name: lane.name } });
    for (const [name, ts, dur] of lane.spans) events.push({ ph: "X", pid: 1, tid, name, ts, dur });
  });
  return { displayTimeUnit: "ms", traceEvents: events };
}

export class TimelinePanel {
  constructor() {
    this.lanes = [];
    this.held = false;
    this.length = make("p", { class: "muted", id: "timeline-length", text: "No iteration has been seen yet." });
    this.hold = button("Hold", () => this.setHeld(!this.held), { id: "timeline-hold", "aria-pressed": "false" });
    this.download = button("Download trace", () => this.save(),
                           { id: "timeline-download", disabled: true,
                             title: "Trace Event Format, for Perfetto or chrome://tracing" });
    this.body = make("div", { class: "lanes" });
    this.node = make("section", { class: "card wide", id: "timeline", "aria-label": "Last iteration" },
                     make("div", { class: "card-head" }, make("h2", { text: "Last iteration" }), this.hold,
                          this.download),
                     this.length, this.body);
  }

  setHeld(held) {
    this.held = held;
    this.hold.setAttribute("aria-pressed", String(held));
  }

  update(lanes) {
    if (this.held) return;
    this.lanes = [...lanes].sort(byRank);
    this.download.disabled = false;
    const end = endOf(this.lanes);
    setText(this.length, `${(end / 1000).toFixed(end < 10_000 ? 2 : 1)} ms, from the end of the one before to its own`);
    this.body.replaceChildren(...this.lanes.map((lane) => this.laneOf(lane, end)));
  }

  laneOf(lane, end) {
    const busy = lane.spans.reduce((sum, [name, , length]) => sum + (kindOf(name) === "wait" ? 0 : length), 0);
    const track = make("span", { class: "lane-track", "aria-hidden": "true" });
    for (const [name, begin, length] of lane.spans) {
      // A line between spans would hide those that are hardly wider.
      const edge = length / end > MIN_EDGED ? " edged" : "";
      const span = make("i", { class: kindOf(name) + edge, title: `${name}: ${length.toFixed(1)} µs` });
      span.style.left = `${100 * begin / end}%`;
      span.style.width = `${100 * length / end}%`;
      track.append(span);
    }
    const share = `${Math.min(100 * busy / end, 100).toFixed(0)} %`;
    return make("div", { class: "lane", dataset: { lane: laneKind(lane) } }, make("span", { class: "lane-name", text: labelOf(lane) }),
                track, make("span", { class: "lane-share", text: share }));
  }

  save() {
    const url = URL.createObjectURL(new Blob([JSON.stringify(traceOf(this.lanes))], { type: "application/json" }));
    make("a", { href: url, download: "tandem-iteration.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  }
}
