// markdown.js: a small Markdown, built from DOM nodes only: text of a model never becomes HTML.

const inline = [
  [/^`([^`]+)`/, (m) => element("code", m[1])],
  [/^\*\*(.+?)\*\*/s, (m) => element("strong", spans(m[1]))],
  [/^__(.+?)__(?!\w)/s, (m) => element("strong", spans(m[1]))],
  [/^\*([^\s*](?:[^*]*[^\s*])?)\*/, (m) => element("em", spans(m[1]))],
  [/^~~(.+?)~~/s, (m) => element("del", spans(m[1]))],
  [/^\[([^\]]*)\]\((https?:\/\/[^\s)]+)\)/, (m) => link(m[2], m[1])],
  [/^https?:\/\/[^\s<>"')\]]*[^\s<>"')\].,;:!?]/, (m) => link(m[0], m[0])],
];

export function element(name, content, attributes) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) e.setAttribute(key, value);
  if (typeof content === "string") e.textContent = content;
  else if (content) e.append(...[content].flat());
  return e;
}

function link(address, text) {
  return element("a", text, { href: address, rel: "noopener noreferrer", target: "_blank" });
}

function spans(text) {
  const out = [];
  let plain = "";
  for (let i = 0; i < text.length;) {
    let hit = null;
    if ("`*_~[h".includes(text[i])) {
      for (const [pattern, make] of inline) {
        const m = pattern.exec(text.slice(i));
        if (!m) continue;
        hit = m[0];
        if (plain) out.push(plain);
        plain = "";
        out.push(make(m));
        break;
      }
    }
    if (!hit) plain += text[i];
    i += hit ? hit.length : 1;
  }
  if (plain) out.push(plain);
  return out;
}

function codeBlock(language, text) {
  const copy = element("button", "Copy", { type: "button", class: "copy" });
  copy.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    copy.textContent = "Copied";
    setTimeout(() => { copy.textContent = "Copy"; }, 1500);
  });
  return element("div", [element("div", [element("span", language || "code"), copy], { class: "code-head" }), element("pre", element("code", text))], { class: "code" });
}

function table(rows) {
  const cells = (row) => row.replace(/^\s*\|/, "").replace(/\|\s*$/, "").split("|").map((c) => c.trim());
  const head = element("thead", element("tr", cells(rows[0]).map((c) => element("th", spans(c), { scope: "col" }))));
  const body = element("tbody", rows.slice(2).map((r) => element("tr", cells(r).map((c) => element("td", spans(c))))));
  return element("div", element("table", [head, body]), { class: "scroll" });
}

const item = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;

// Lines that begin with a marker, as nested lists; returns the list and the first line after it.
function list(lines, at, indent) {
  const ordered = /\d/.test(item.exec(lines[at])[2]);
  const root = element(ordered ? "ol" : "ul");
  if (ordered) root.start = parseInt(item.exec(lines[at])[2], 10);
  while (at < lines.length) {
    const m = item.exec(lines[at]);
    if (!m || m[1].length < indent) break;
    if (m[1].length > indent + 1 && root.lastChild) {
      const [inner, next] = list(lines, at, m[1].length);
      root.lastChild.append(inner);
      at = next;
      continue;
    }
    const text = [m[3]];
    at++;
    while (at < lines.length && lines[at].trim() && !item.test(lines[at]) && /^\s{2,}/.test(lines[at])) text.push(lines[at++].trim());
    root.append(element("li", spans(text.join(" "))));
    if (at + 1 < lines.length && !lines[at].trim() && item.test(lines[at + 1])) at++;
  }
  return [root, at];
}

const starts = (line) => /^(```|~~~|#{1,6}\s|>\s?|\s*([-*+]|\d{1,9}[.)])\s+|(\*{3,}|-{3,}|_{3,})\s*$)/.test(line);

export function markdown(text, depth = 0) {
  const out = document.createDocumentFragment();
  const lines = text.split("\n");
  for (let i = 0; i < lines.length;) {
    const line = lines[i];
    const fence = /^\s*(```+|~~~+)\s*([^\s`]*)/.exec(line);
    if (fence) {
      const code = [];
      for (i++; i < lines.length && !lines[i].trim().startsWith(fence[1]); i++) code.push(lines[i]);
      i++;
      out.append(codeBlock(fence[2], code.join("\n")));
    } else if (!line.trim()) {
      i++;
    } else if (/^#{1,6}\s/.test(line)) {
      const level = Math.min(6, /^#+/.exec(line)[0].length + 1);
      out.append(element("h" + level, spans(line.replace(/^#+\s+/, ""))));
      i++;
    } else if (/^(\*{3,}|-{3,}|_{3,})\s*$/.test(line)) {
      out.append(element("hr"));
      i++;
    } else if (/^>\s?/.test(line) && depth < 4) {
      const quoted = [];
      while (i < lines.length && /^>\s?/.test(lines[i])) quoted.push(lines[i++].replace(/^>\s?/, ""));
      out.append(element("blockquote", [markdown(quoted.join("\n"), depth + 1)]));
    } else if (item.test(line)) {
      const [root, next] = list(lines, i, item.exec(line)[1].length);
      out.append(root);
      i = next;
    } else if (line.includes("|") && /^\s*\|?[\s:|-]*-[\s:|-]*\|[\s:|-]*$/.test(lines[i + 1] ?? "")) {
      const rows = [];
      while (i < lines.length && lines[i].includes("|")) rows.push(lines[i++]);
      out.append(table(rows));
    } else {
      const words = [line];
      for (i++; i < lines.length && lines[i].trim() && !starts(lines[i]); i++) words.push(lines[i]);
      const p = element("p");
      words.forEach((w, k) => p.append(...(k ? [element("br")] : []), ...spans(w)));
      out.append(p);
    }
  }
  return out;
}
