// Requests as bars: those of a tier, and those that wait.
import { make, setText } from "./dom.js";

const MAX_BARS = 48;

const number = (value) => value.toLocaleString("en-US");

// A list of bars, one a request, as long as their tokens are many. Bars stay the same elements while their request
// is there, so that they grow.
class Bars {
  constructor(label) {
    this.list = make("ul", { class: "bars", tabindex: "0", "aria-label": label });
    this.more = make("p", { class: "muted" });
    this.byId = new Map();
  }

  update(requests, longest, leftOff = 0) {
    const shown = requests.slice(0, MAX_BARS);
    const ids = new Set(shown.map((request) => request.id));
    for (const [id, bar] of this.byId) {
      if (ids.has(id)) continue;
      bar.item.remove();
      this.byId.delete(id);
    }
    shown.forEach((request, index) => {
      const bar = this.byId.get(request.id) ?? this.add(request);
      if (this.list.children[index] !== bar.item) this.list.insertBefore(bar.item, this.list.children[index] ?? null);
      this.draw(bar, request, longest);
    });
    const hidden = requests.length - shown.length + leftOff;
    setText(this.more, hidden > 0 ? `and ${number(hidden)} more` : "");
  }

  add(request) {
    const parts = { prompt: make("i", { class: "prompt" }), todo: make("i", { class: "todo" }),
                    generated: make("i", { class: "generated" }) };
    const text = make("span", { class: "bar-text" });
    const item = make("li", { dataset: { id: String(request.id) } },
                      make("span", { class: "bar-track", "aria-hidden": "true" }, parts.prompt, parts.todo,
                           parts.generated), text);
    this.byId.set(request.id, { item, parts, text });
    return this.byId.get(request.id);
  }

  draw(bar, request, longest) {
    const computedPrompt = Math.min(request.computed_tokens, request.prompt_tokens);
    const width = (tokens) => `${100 * tokens / longest}%`;
    bar.parts.prompt.style.width = width(computedPrompt);
    bar.parts.todo.style.width = width(request.prompt_tokens - computedPrompt);
    bar.parts.generated.style.width = width(request.generated_tokens);
    bar.item.className = request.state;
    const blocks = request.blocks > 0 ? `, ${number(request.blocks)} blocks` : "";
    const again = request.preemptions > 0 ? `, preempted ${request.preemptions}×` : "";
    setText(bar.text, `#${request.id} ${request.state}: ${number(request.prompt_tokens)} + ` +
                      `${number(request.generated_tokens)} of ${number(request.max_tokens)}${blocks}${again}`);
  }
}

// Tokens of the longest request: bars of all lists have one scale.
export function longestOf(requests) {
  return requests.reduce((most, each) => Math.max(most, each.prompt_tokens + each.generated_tokens), 64);
}

export class TierPanel {
  constructor(tier) {
    this.tier = tier;
    this.bars = new Bars(`Requests of the ${tier} tier`);
    this.blocks = make("p", { class: "blocks", id: `${tier}-blocks` });
    this.meter = make("meter", { min: 0, max: 1, value: 0, "aria-label": `Blocks of the ${tier} tier in use` });
    this.node = make("section", { class: `card tier ${tier}`, id: `${tier}-tier`, "aria-label": `${tier} tier` },
                     make("h2", { text: `${tier} tier` }), this.blocks, this.meter, this.bars.list, this.bars.more);
  }

  update(event, longest) {
    const { blocks, free, cached } = event.tiers[this.tier];
    const used = blocks - free;
    this.meter.value = blocks > 0 ? used / blocks : 0;
    setText(this.blocks, blocks === 0
      ? "There is none."
      : `${number(used)} of ${number(blocks)} blocks in use, room for ${number(free * event.block_size)} tokens` +
        (cached > 0 ? `; ${number(cached)} blocks can be found again` : ""));
    if (event.requests !== null) {
      this.bars.update(event.requests.filter((request) => request.tier === this.tier), longest);
    }
  }
}

export class QueuePanel {
  constructor() {
    this.bars = new Bars("Requests that wait");
    this.count = make("p", { class: "blocks", id: "queue-count" });
    this.node = make("section", { class: "card tier queue", id: "queue", "aria-label": "Queue" },
                     make("h2", { text: "Queue" }), this.count, this.bars.list, this.bars.more);
  }

  update(event, longest) {
    setText(this.count, event.waiting === 0 ? "Nobody waits." : `${number(event.waiting)} wait`);
    if (event.requests === null) return;
    this.bars.update(event.requests.filter((request) => request.tier === null), longest, event.requests_left_off);
  }
}
