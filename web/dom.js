// dom.js: making elements. Text goes in as text: nothing here reads HTML.

export const $ = (id) => document.getElementById(id);

export function element(name, content, attributes) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(attributes ?? {})) if (value !== undefined && value !== null && value !== false) e.setAttribute(key, value === true ? "" : value);
  if (typeof content === "string") e.textContent = content;
  else if (content) e.append(...[content].flat().filter((part) => part !== null && part !== undefined));
  return e;
}

const SVG = "http://www.w3.org/2000/svg";
export function svg(name, attributes, content) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes ?? {})) e.setAttribute(key, value);
  if (content) e.append(...[content].flat());
  return e;
}

// A drawing of index.html's set.
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true", viewBox: "0 0 24 24" }, svg("use", { href: "#i-" + name }));
}

export function button(text, action, { icon: drawing, label, kind = "quiet", ...rest } = {}) {
  const b = element("button", [drawing ? icon(drawing) : null, text ? element("span", text) : null], { type: "button", class: kind, "aria-label": label, title: text ? null : label, ...rest });
  b.addEventListener("click", action);
  return b;
}

// Said once to who cannot see it.
export function announce(text) {
  const line = $("announce");
  line.textContent = "";
  requestAnimationFrame(() => { line.textContent = text; });
}

export async function copy(text, from) {
  let ok = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // No clipboard without https: the old way.
    const area = element("textarea", text, { class: "hidden", readonly: true });
    document.body.append(area);
    area.select();
    ok = document.execCommand("copy");
    area.remove();
    from?.focus();
  }
  announce(ok ? "Copied." : "The browser does not let this page copy.");
  return ok;
}

export function copyButton(text, options) {
  const b = button("Copy", async () => {
    if (!(await copy(typeof text === "function" ? text() : text, b))) return;
    b.replaceChildren(icon("check"), element("span", "Copied"));
    setTimeout(() => b.replaceChildren(icon("copy"), element("span", "Copy")), 1600);
  }, { icon: "copy", ...options });
  return b;
}

export const count = (n) => n.toLocaleString("en-US");
export const many = (n, one, more = one + "s") => `${count(n)} ${n === 1 ? one : more}`;
export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let i = 0;
  for (; n >= 1000 && i < units.length - 1; i++) n /= 1000;
  return (i === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1)) + " " + units[i];
}
export function duration(s) {
  if (s < 0.001) return s > 0 ? (s * 1e6).toFixed(0) + " µs" : "0 s";
  if (s < 1) return (s * 1000).toFixed(s < 0.01 ? 1 : 0) + " ms";
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  if (s < 3600) return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`;
  return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
}
