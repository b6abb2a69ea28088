// Inline markdown to nodes: code, emphasis, links. Everything else is text, markup of HTML included.
import { make } from "./dom.js";

// Addresses that a link may have; null: it stays text.
export function safeUrl(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

function link(url, children) {
  return make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, ...children);
}

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}]/u;

// The end of a code span that begins at `start` with `ticks`; -1: there is none.
function codeEnd(text, start, ticks) {
  for (let at = text.indexOf(ticks, start); at >= 0; at = text.indexOf(ticks, at)) {
    let end = at;
    while (text[end] === "`") ++end;
    if (end - at === ticks.length) return at;
    at = end;
  }
  return -1;
}

const MAX_LINK = 2000;

// Where the bracket that is open before `start` closes, escapes passed over; -1: nowhere near.
function closing(text, start, open, close) {
  let depth = 1;
  for (let at = start; at < Math.min(text.length, start + MAX_LINK); ++at) {
    if (text[at] === "\\") ++at;
    else if (text[at] === "\n" && open === "(") return -1;
    else if (text[at] === open) ++depth;
    else if (text[at] === close && --depth === 0) return at;
  }
  return -1;
}

const MARKS = [
  { mark: "**", tag: "strong" }, { mark: "__", tag: "strong", words: true }, { mark: "~~", tag: "del" },
  { mark: "*", tag: "em" }, { mark: "_", tag: "em", words: true },
];

// The closing mark of an emphasis whose text begins at `start`; -1: there is none.
function emphasisEnd(text, start, { mark, words }) {
  for (let at = start; at < text.length; ++at) {
    if (text[at] === "\\") {
      ++at;
    } else if (text[at] === "`") {
      let ticks = at;
      while (text[ticks] === "`") ++ticks;
      const end = codeEnd(text, ticks, text.slice(at, ticks));
      at = end < 0 ? ticks - 1 : end + (ticks - at) - 1;
    } else if (text.startsWith(mark, at)) {
      let run = at;
      while (text[run] === mark[0]) ++run;
      const fits = mark.length === 1 ? (run - at) % 2 === 1 : run - at >= mark.length;
      const after = text[run] ?? " ";
      if (fits && at > start && !/\s/.test(text[at - 1]) && !(words && WORD.test(after))) return run - mark.length;
      at = run - 1;
    }
  }
  return -1;
}

const MAX_DEPTH = 16;

class Inline {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.nodes = [];
    this.plain = "";
    this.unclosed = new Set();  // marks that nothing closes from here on
  }

  flush() {
    if (this.plain !== "") this.nodes.push(document.createTextNode(this.plain));
    this.plain = "";
  }
  push(node, end) {
    this.flush();
    this.nodes.push(node);
    this.at = end;
    return true;
  }
  inner(text) {
    return inlineNodes(text, this.depth + 1);
  }

  run() {
    while (this.at < this.text.length) {
      if (this.escape() || this.breakLine() || this.code() || this.namedLink() || this.address() || this.emphasis()) {
        continue;
      }
      this.plain += this.text[this.at++];
    }
    this.flush();
    return this.nodes;
  }

  escape() {
    const next = this.text[this.at + 1];
    if (this.text[this.at] !== "\\" || next === undefined || !PUNCTUATION.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  // Models mean the line ends that they write.
  breakLine() {
    if (this.text[this.at] !== "\n") return false;
    this.plain = this.plain.replace(/ +$/, "");
    return this.push(make("br"), this.at + 1);
  }

  code() {
    if (this.text[this.at] !== "`") return false;
    let start = this.at;
    while (this.text[start] === "`") ++start;
    const ticks = this.text.slice(this.at, start);
    const end = codeEnd(this.text, start, ticks);
    if (end < 0) {
      this.plain += ticks;
      this.at = start;
      return true;
    }
    const content = this.text.slice(start, end).replaceAll("\n", " ").replace(/^ (.*\S.*) $/, "$1");
    return this.push(make("code", { text: content }), end + ticks.length);
  }

  // [text](address) and ![text](address): no image is loaded, its address is a link.
  namedLink() {
    const image = this.text[this.at] === "!" && this.text[this.at + 1] === "[";
    const open = image ? this.at + 1 : this.at;
    if (this.text[open] !== "[" || this.depth >= MAX_DEPTH) return false;
    const close = closing(this.text, open + 1, "[", "]");
    if (close < 0 || this.text[close + 1] !== "(") return false;
    const end = closing(this.text, close + 2, "(", ")");
    if (end < 0) return false;
    const address = this.text.slice(close + 2, end).trim().replace(/\s+["'(].*$/s, "").replace(/^<(.*)>$/, "$1");
    const url = safeUrl(address);
    const label = this.text.slice(open + 1, close);
    if (url === null) return false;
    return this.push(link(url, label === "" ? [url] : this.inner(label)), end + 1);
  }

  address() {
    if (!/[h<]/i.test(this.text[this.at]) || (this.at > 0 && WORD.test(this.text[this.at - 1]))) return false;
    const found = /^(?:<(https?:\/\/[^\s<>]+)>|(https?:\/\/[^\s<>]+))/i.exec(this.text.slice(this.at, this.at + MAX_LINK));
    if (found === null) return false;
    let shown = found[1] ?? found[2];
    if (found[1] === undefined) {
      shown = shown.replace(/[.,;:!?'"*_~\]]+$/, "");
      if (shown.endsWith(")") && !shown.includes("(")) shown = shown.slice(0, -1);
    }
    const url = safeUrl(shown);
    if (url === null) return false;
    return this.push(link(url, [shown]), this.at + (found[1] === undefined ? shown.length : found[0].length));
  }

  emphasis() {
    if (this.depth >= MAX_DEPTH) return false;
    for (const kind of MARKS) {
      if (!this.text.startsWith(kind.mark, this.at)) continue;
      if (this.unclosed.has(kind.mark)) continue;
      if (kind.words && this.at > 0 && WORD.test(this.text[this.at - 1])) continue;
      const start = this.at + kind.mark.length;
      if (start >= this.text.length || /\s/.test(this.text[start])) continue;
      const end = emphasisEnd(this.text, start, kind);
      if (end < 0) {
        this.unclosed.add(kind.mark);
        continue;
      }
      return this.push(make(kind.tag, {}, ...this.inner(this.text.slice(start, end))), end + kind.mark.length);
    }
    // What opens nothing is text as a whole.
    const run = /^[*_~]+/.exec(this.text.slice(this.at));
    if (run === null) return false;
    this.plain += run[0];
    this.at += run[0].length;
    return true;
  }
}

export function inlineNodes(text, depth = 0) {
  return new Inline(text, depth).run();
}
