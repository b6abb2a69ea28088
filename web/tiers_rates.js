// What two moments of /tiers say about the time between them.

const NOW_S = 2;
const MINUTE_S = 60;

export class TiersHistory {
  constructor() {
    this.moments = [];
  }

  add(event) {
    // A new server counts from 0, and its clock may be another.
    const last = this.moments.at(-1);
    if (last && (event.time <= last.time || event.totals.iterations < last.totals.iterations)) this.moments = [];
    this.moments.push({ time: event.time, totals: event.totals });
    while (event.time - this.moments[0].time > MINUTE_S) this.moments.shift();
  }

  // Of the last seconds; null before there are two moments.
  now() {
    return this.ratesSince(NOW_S);
  }
  lastMinute() {
    return this.ratesSince(MINUTE_S);
  }

  ratesSince(seconds) {
    const last = this.moments.at(-1);
    const first = this.moments.findLast((moment) => last.time - moment.time >= seconds) ?? this.moments[0];
    if (!last || last.time === first.time) return null;
    return new Rates(first, last);
  }
}

class Rates {
  constructor(first, last) {
    this.first = first.totals;
    this.last = last.totals;
    this.seconds = last.time - first.time;
  }

  // Of a counter of `totals`.
  grown(name) {
    return this.last[name] - this.first[name];
  }
  perSecond(name) {
    return this.grown(name) / this.seconds;
  }
  // Of the time; a counter grows when its iteration ends, so a moment's may be a little more than all of it.
  share(name) {
    return Math.min(this.grown(name) / this.seconds, 1);
  }
  // [kind of plan, iterations], most first.
  strategies() {
    const before = this.first.strategy_iterations;
    return Object.entries(this.last.strategy_iterations)
      .map(([name, count]) => [name, count - (before[name] ?? 0)])
      .filter(([, count]) => count > 0)
      .sort((a, b) => b[1] - a[1]);
  }
}

// Shares beyond which something is said to be what the others wait for.
const MOSTLY = 0.85;
const MUCH_WAITING = 0.25;
const MUCH_GAP = 0.2;

// What limits the work, as far as the numbers say. waitShare: of the last iteration, that the compute stream waited
// for CPU attention; null: not known.
export function boundOf(event, rates, waitShare) {
  if (event.running + event.waiting === 0) return "Nothing to do.";
  if (rates === null || rates.grown("iterations") <= 0) return "An iteration is under way.";
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  const gpu = rates.grown("gpu_busy_seconds");
  const gap = rates.grown("gpu_gap_seconds");
  const attention = rates.share("cpu_attention_busy_seconds");
  if (waitShare !== null && waitShare > MUCH_WAITING) {
    return `CPU attention: the compute stream waited for it for ${percent(waitShare)} of the last iteration.`;
  }
  if (attention > MOSTLY) return `CPU attention: its workers are busy ${percent(attention)} of the time.`;
  if (gap > MUCH_GAP * (gpu + gap)) {
    return `The engine thread: the compute stream waits for it ${percent(gap / (gpu + gap))} of the time.`;
  }
  if (rates.share("gpu_busy_seconds") > MOSTLY) {
    return `The compute stream: it is busy ${percent(rates.share("gpu_busy_seconds"))} of the time.`;
  }
  return "The load: the server could do more.";
}
