// The view of both tiers: who lies where, what is done now, and why.
import { make } from "./dom.js";
import { longestOf, QueuePanel, TierPanel } from "./tiers_bars.js";
import { TiersFeed } from "./tiers_feed.js";
import { LatencyPanel, StrategyPanel, WorkPanel } from "./tiers_numbers.js";
import { TiersHistory } from "./tiers_rates.js";
import { TimelinePanel, waitShareOf } from "./tiers_timeline.js";

export class TiersView {
  constructor(root) {
    this.state = make("p", { id: "tiers-state", role: "status", class: "muted", text: "Connecting…" });
    this.gpu = new TierPanel("gpu");
    this.cpu = new TierPanel("cpu");
    this.queue = new QueuePanel();
    this.work = new WorkPanel();
    this.strategy = new StrategyPanel();
    this.latencies = new LatencyPanel();
    this.timeline = new TimelinePanel();
    const legend = make("p", { class: "legend muted" }, make("i", { class: "prompt" }), "prompt in the cache",
                        make("i", { class: "todo" }), "prompt to come", make("i", { class: "generated" }), "generated");
    root.append(this.state, this.gpu.node, this.cpu.node, this.queue.node, legend, this.work.node, this.strategy.node,
                this.latencies.node, this.timeline.node);
    this.reset();
    this.feed = new TiersFeed((name, content) => this.take(name, content), (text) => {
      this.state.textContent = text;
      this.state.hidden = text === "";
    });
  }

  reset() {
    this.history = new TiersHistory();
    this.waitShare = null;
  }

  start() {
    this.reset();
    this.feed.start();
  }

  stop() {
    this.feed.stop();
  }

  take(name, content) {
    if (name === "timeline") {
      this.waitShare = waitShareOf(content.lanes);
      this.timeline.update(content.lanes);
    }
    if (name !== "tiers") return;
    this.history.add(content);
    const longest = longestOf(content.requests ?? []);
    for (const panel of [this.gpu, this.cpu, this.queue]) panel.update(content, longest);
    this.work.update(content, this.history.now(), this.waitShare);
    this.strategy.update(content, this.history.lastMinute());
    this.latencies.update(content.last_minute);
  }
}
