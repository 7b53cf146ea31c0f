// markdown.js: a small Markdown, built from DOM nodes only: text of a model never becomes HTML, and pictures are not fetched.
//
// A text is cut into blocks, one node each. While an answer grows, blocks that did not change keep their nodes.
import { copyButton, element } from "./dom.js";
import { highlight } from "./highlight.js";

// ---- within a line ----

// Spans are bounded, so that no text is slow to read.
const inline = [
  [/`{2}([^]{1,2000}?)`{2}/y, (m) => element("code", m[1].trim())],
  [/`([^`]{1,2000})`/y, (m) => element("code", m[1])],
  [/\*\*(\S(?:[^]{0,2000}?\S)??)\*\*/y, (m, depth) => element("strong", spans(m[1], depth))],
  [/__(\S(?:[^]{0,2000}?\S)??)__(?!\w)/y, (m, depth) => element("strong", spans(m[1], depth))],
  [/\*(?=[^\s*])([^*]{0,2000}[^\s*])\*(?!\*)/y, (m, depth) => element("em", spans(m[1], depth))],
  [/_(?=[^\s_])([^_]{0,2000}[^\s_])_(?!\w)/y, (m, depth) => element("em", spans(m[1], depth))],
  [/~~(?=\S)([^]{1,2000}?)~~/y, (m, depth) => element("del", spans(m[1], depth))],
  [/!?\[([^\]]{0,500})\]\((https?:\/\/[^\s)]{1,2000}|mailto:[^\s)]{1,200})(?:\s+"[^"]{0,200}")?\)/y, (m) => link(m[2], m[1] || m[2])],
  [/<(https?:\/\/[^\s>]{1,2000})>/y, (m) => link(m[1], m[1])],
  [/https?:\/\/[^\s<>"')\]]{0,2000}[^\s<>"')\].,;:!?]/y, (m) => link(m[0], m[0])],
  [/\\([!-/:-@[-`{-~])/y, (m) => m[1]],
];

function link(address, text) {
  return element("a", text, { href: address, rel: "noopener noreferrer", target: "_blank" });
}

function spans(text, depth = 0) {
  if (depth > 5 || text.length > 20000) return [text];
  const out = [];
  let plain = "";
  for (let i = 0; i < text.length;) {
    let hit = null;
    // A line under a word_with_them is no emphasis, an address inside a word no link.
    if ("`*~[<!\\".includes(text[i]) || ((text[i] === "_" || text[i] === "h") && !/\w/.test(text[i - 1] ?? ""))) {
      for (const [pattern, make] of inline) {
        pattern.lastIndex = i;
        hit = pattern.exec(text);
        if (!hit) continue;
        const made = make(hit, depth + 1);
        if (typeof made === "string") plain += made;
        else {
          if (plain) out.push(plain);
          plain = "";
          out.push(made);
        }
        break;
      }
    }
    if (!hit) plain += text[i];
    i += hit ? hit[0].length : 1;
  }
  if (plain) out.push(plain);
  return out;
}

function lines(text) {
  return text.split("\n").flatMap((line, i) => [...(i ? [element("br")] : []), ...spans(line.trimEnd())]);
}

// ---- blocks ----

const item = /^(\s*)([-*+]|\d{1,9}[.)])(\s+)(.*)$/;
const rule = /^\s{0,3}([-*_])(\s*\1){2,}\s*$/;
const heading = /^(#{1,6})\s+(.{0,1000}?)\s*#*$/;
const fence = /^(\s*)(`{3,}|~{3,})\s*([^\s`]*)/;
const isTableRule = (line) => line !== undefined && line.length < 1000 && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(line) && line.includes("|");
const starts = (line) => fence.test(line) || heading.test(line) || /^\s{0,3}>/.test(line) || item.test(line) || rule.test(line);

// The first line after the block that begins here, and its kind.
function blockEnd(all, at) {
  const line = all[at], open = fence.exec(line);
  let i = at + 1;
  if (open) {
    while (i < all.length && !(all[i].trim().startsWith(open[2]) && !all[i].trim().slice(open[2].length).replaceAll(open[2][0], ""))) i++;
    return [Math.min(i + 1, all.length), "code", i < all.length];
  }
  if (heading.test(line)) return [i, "heading"];
  if (rule.test(line)) return [i, "rule"];
  if (/^\s{0,3}>/.test(line)) {
    while (i < all.length && /^\s{0,3}>/.test(all[i])) i++;
    return [i, "quote"];
  }
  if (item.test(line)) {
    const ordered = /\d/.test(item.exec(line)[2]), indent = item.exec(line)[1].length;
    for (; i < all.length; i++) {
      if (!all[i].trim()) {
        // An empty line stays inside when the list or an item goes on after it.
        const next = all[i + 1] ?? "", m = item.exec(next);
        if (m ? m[1].length > indent || /\d/.test(m[2]) === ordered : /^\s{2,}\S/.test(next)) continue;
        break;
      }
      const m = item.exec(all[i]);
      if (m && m[1].length <= indent && /\d/.test(m[2]) !== ordered) break;
      if (!m && !/^\s/.test(all[i]) && starts(all[i])) break;
    }
    return [i, "list"];
  }
  if (line.includes("|") && isTableRule(all[at + 1])) {
    while (i < all.length && all[i].includes("|")) i++;
    return [i, "table"];
  }
  while (i < all.length && all[i].trim() && !starts(all[i]) && !(all[i].includes("|") && isTableRule(all[i + 1]))) i++;
  return [i, "text"];
}

function blocks(text) {
  const all = text.replaceAll("\r\n", "\n").split("\n"), out = [];
  for (let i = 0; i < all.length;) {
    if (!all[i].trim()) {
      i++;
      continue;
    }
    const [end, kind, closed] = blockEnd(all, i);
    out.push({ kind, lines: all.slice(i, end), source: all.slice(i, end).join("\n") + (closed ? "\n" : ""), closed });
    i = end;
  }
  return out;
}

function code({ lines: all, closed }) {
  const [, indent, , language] = fence.exec(all[0]);
  const text = all.slice(1, closed ? -1 : undefined).map((l) => l.startsWith(indent) ? l.slice(indent.length) : l.trimStart()).join("\n");
  const head = element("div", [element("span", language || "text"), copyButton(text, { label: "Copy this code" })], { class: "code-head" });
  return element("div", [head, element("pre", element("code", closed ? highlight(text, language) : text))], { class: "code" });
}

function table({ lines: rows }) {
  const cells = (row) => row.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "").split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));
  const align = cells(rows[1]).map((c) => c.startsWith(":") && c.endsWith(":") ? "middle" : c.endsWith(":") ? "right" : null);
  const row = (r, name, attributes) => element("tr", cells(r).map((c, i) => element(name, spans(c), { ...attributes, class: align[i] })));
  return element("div", element("table", [element("thead", row(rows[0], "th", { scope: "col" })), element("tbody", rows.slice(2).map((r) => row(r, "td")))]), { class: "scroll" });
}

function list({ lines: all }, depth) {
  const first = item.exec(all[0]), ordered = /\d/.test(first[2]), indent = first[1].length;
  const root = element(ordered ? "ol" : "ul", null, ordered && first[2] !== "1." ? { start: parseInt(first[2], 10) } : {});
  for (let i = 0; i < all.length;) {
    const m = item.exec(all[i]), width = m ? m[1].length + m[2].length + Math.min(m[3].length, 4) : 0;
    const inner = [m ? m[4] : all[i]];
    for (i++; i < all.length; i++) {
      const next = item.exec(all[i]);
      if (next && next[1].length <= indent + 1) break;
      inner.push(all[i].replace(new RegExp(`^\\s{0,${width}}`), ""));
    }
    const task = /^\[([ xX])\]\s+/.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(task[0].length);
    const parts = blocks(inner.join("\n"));
    // An item of one paragraph is no paragraph.
    const content = parts.flatMap((b, k) => k === 0 && b.kind === "text" ? lines(b.lines.join("\n")) : [node(b, depth + 1)]);
    const box = task ? element("input", null, { type: "checkbox", disabled: true, checked: task[1] !== " " }) : null;
    root.append(element("li", [box, ...content], task ? { class: "task" } : {}));
  }
  return root;
}

function node(block, depth) {
  const text = block.lines.join("\n");
  if (depth > 6) return element("p", text);
  switch (block.kind) {
  case "code": return code(block);
  case "heading": {
    const [, marks, words] = heading.exec(block.lines[0]);
    return element("h" + Math.min(6, marks.length + 2), spans(words));
  }
  case "rule": return element("hr");
  case "quote": return element("blockquote", blocks(block.lines.map((l) => l.replace(/^\s{0,3}>\s?/, "")).join("\n")).map((b) => node(b, depth + 1)));
  case "list": return list(block, depth);
  case "table": return table(block);
  default: return element("p", lines(text.trim()));
  }
}

const shown = new WeakMap(); // container -> sources of its nodes

// Makes the container show this text, touching only what changed.
export function showMarkdown(container, text) {
  const next = blocks(text), old = shown.get(container) ?? [];
  let same = 0;
  while (same < old.length && same < next.length && old[same] === next[same].source) same++;
  while (container.childNodes.length > same) container.lastChild.remove();
  for (const block of next.slice(same)) container.append(node(block, 0));
  shown.set(container, next.map((b) => b.source));
}
