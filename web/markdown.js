// Markdown to nodes, without markup of HTML: paragraphs, headings, lists, quotes, tables, code, rules. Nothing here
// sets innerHTML: what a model writes is text.
import { copyButton, make } from "./dom.js";
import { inlineNodes } from "./markdown_inline.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const MAX_DEPTH = 12;

const blank = (line) => line.trim() === "";
const indentOf = (line) => /^ */.exec(line)[0].length;
const beginsTable = (lines, at) =>
  lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && TABLE_RULE.test(lines[at + 1]) &&
  cellsOf(lines[at]).length === cellsOf(lines[at + 1]).length;
const beginsBlock = (lines, at) =>
  [FENCE, HEADING, RULE, QUOTE].some((form) => form.test(lines[at])) || beginsTable(lines, at);

function cellsOf(line) {
  const cells = [""];
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  let inCode = false;
  for (let at = 0; at < text.length; ++at) {
    if (text[at] === "`") inCode = !inCode;
    if (text[at] === "\\" && text[at + 1] === "|") {
      cells[cells.length - 1] += "|";
      ++at;
    } else if (text[at] === "|" && !inCode) {
      cells.push("");
    } else {
      cells[cells.length - 1] += text[at];
    }
  }
  return cells.map((cell) => cell.trim());
}

// Each takes lines from `at` on and says where it ends; build makes the node.
function fence(lines, at) {
  const [, marks, info] = FENCE.exec(lines[at]);
  const indent = indentOf(lines[at]);
  let end = at + 1;
  const isEnd = (line) => new RegExp(`^ {0,3}${marks[0]}{${marks.length},}\\s*$`).test(line);
  while (end < lines.length && !isEnd(lines[end])) ++end;
  const code = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent, indentOf(line)))).join("\n");
  return { end: Math.min(end + 1, lines.length), build: () => codeBlock(code, info.trim().split(/\s/)[0]) };
}

function codeBlock(code, language) {
  const copy = copyButton(() => code, { class: "copy" });
  return make("div", { class: "code-block" },
              make("div", { class: "code-head" }, make("span", { text: language }), copy),
              make("pre", { tabindex: "0" }, make("code", { text: code })));
}

function quote(lines, at, depth) {
  let end = at;
  while (end < lines.length && (QUOTE.test(lines[end]) || (!blank(lines[end]) && !beginsBlock(lines, end)))) ++end;
  const inner = lines.slice(at, end).map((line) => line.replace(QUOTE, ""));
  return { end, build: () => make("blockquote", {}, ...buildAll(inner, depth + 1)) };
}

function table(lines, at) {
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|") && !blank(lines[end])) ++end;
  const aligned = cellsOf(lines[at + 1]).map((cell) =>
    cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null);
  const cell = (tag, text, column) =>
    make(tag, { class: aligned[column], scope: tag === "th" ? "col" : null }, ...inlineNodes(text));
  const row = (tag, line) =>
    make("tr", {}, ...cellsOf(line).slice(0, aligned.length).map((text, column) => cell(tag, text, column)));
  return {
    end,
    build: () => make("div", { class: "table", tabindex: "0" },
                      make("table", {}, make("thead", {}, row("th", lines[at])),
                           make("tbody", {}, ...lines.slice(at + 2, end).map((line) => row("td", line))))),
  };
}

function list(lines, at, depth) {
  const [, indentText, marker] = ITEM.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const indent = indentText.length;
  const kind = marker.at(-1);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = ITEM.exec(lines[end]);
    const isItem = found !== null && indentOf(lines[end]) < indent + 2 && !RULE.test(lines[end]);
    if (isItem) {
      if (found[2].at(-1) !== kind) break;
      const width = Math.min(found[0].length, indentOf(lines[end]) + found[2].length + 4);
      items.push({ width, lines: [lines[end].slice(width)] });
      ++end;
      continue;
    }
    const item = items.at(-1);
    if (blank(lines[end])) {
      // The list goes on behind an empty line if what follows is an item or indented.
      let next = end;
      while (next < lines.length && blank(lines[next])) ++next;
      if (next === lines.length) break;
      const follows = ITEM.exec(lines[next]);
      const goesOn = indentOf(lines[next]) >= Math.min(item.width, indent + 2) ||
        (follows !== null && follows[2].at(-1) === kind && indentOf(lines[next]) >= indent);
      if (!goesOn) break;
      item.lines.push("");
      ++end;
      continue;
    }
    const inside = indentOf(lines[end]) >= Math.min(item.width, indent + 2);
    const continues = !blank(lines[end - 1]) && !beginsBlock(lines, end);
    if (!inside && !continues) break;
    item.lines.push(lines[end].slice(Math.min(item.width, indentOf(lines[end]))));
    ++end;
  }
  const first = Number.parseInt(marker, 10);
  return {
    end,
    build: () => make(ordered ? "ol" : "ul", { start: ordered && first !== 1 ? first : null },
                      ...items.map((item) => make("li", {}, ...itemNodes(item.lines, depth)))),
  };
}

// A paragraph that an item begins with is its text.
function itemNodes(lines, depth) {
  const nodes = buildAll(lines, depth + 1);
  if (nodes[0]?.tagName !== "P") return nodes;
  return [...nodes[0].childNodes, ...nodes.slice(1)];
}

function paragraph(lines, at) {
  let end = at + 1;
  while (end < lines.length && !blank(lines[end]) && !beginsBlock(lines, end) && !ITEM.test(lines[end])) ++end;
  const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd();
  return { end, build: () => make("p", {}, ...inlineNodes(text)) };
}

function blockAt(lines, at, depth) {
  const line = lines[at];
  if (FENCE.test(line)) return fence(lines, at);
  const heading = HEADING.exec(line);
  if (heading !== null) {
    // Below the page's own headings.
    const level = Math.min(heading[1].length + 2, 6);
    return { end: at + 1, build: () => make(`h${level}`, {}, ...inlineNodes(heading[2])) };
  }
  if (RULE.test(line)) return { end: at + 1, build: () => make("hr") };
  if (depth < MAX_DEPTH && QUOTE.test(line)) return quote(lines, at, depth);
  if (depth < MAX_DEPTH && ITEM.test(line)) return list(lines, at, depth);
  if (beginsTable(lines, at)) return table(lines, at);
  return paragraph(lines, at);
}

// [{source, build}] of the text's blocks.
function blocksOf(lines, depth) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (blank(lines[at])) {
      ++at;
      continue;
    }
    const { end, build } = blockAt(lines, at, depth);
    blocks.push({ source: lines.slice(at, end).join("\n"), build });
    at = end;
  }
  return blocks;
}

const linesOf = (text) => text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n");
const buildAll = (lines, depth) => blocksOf(lines, depth).map((block) => block.build());

export function markdownNodes(text) {
  return buildAll(linesOf(text), 0);
}

// A text that grows: blocks that stay as they were keep their nodes.
export class MarkdownView {
  constructor(node) {
    this.node = node;
    this.shown = [];
  }

  show(text) {
    const blocks = blocksOf(linesOf(text), 0);
    let same = 0;
    while (same < blocks.length && same < this.shown.length && this.shown[same] === blocks[same].source) ++same;
    while (this.node.children.length > same) this.node.lastElementChild.remove();
    this.node.append(...blocks.slice(same).map((block) => block.build()));
    this.shown = blocks.map((block) => block.source);
  }
}
