// chart.js: lines over time, bars against a budget, columns of a histogram. SVG and a few elements, no more.
import { element, svg } from "./dom.js";

const W = 600, H = 132, LEFT = 0, TOP = 10, BOTTOM = 18;

// A round number at or above v, for the top of an axis.
function roundUp(v) {
  if (v <= 1) return 1;
  const power = 10 ** Math.floor(Math.log10(v));
  return [1, 1.5, 2, 3, 4, 5, 6, 8, 10].map((m) => m * power).find((m) => m >= v * 0.999);
}

// A chart of several lines that share one axis. stacked: each stands on the one before.
export class TimeChart {
  constructor(title, lines, { unit = "", stacked = false, format = (v) => (v >= 100 ? v.toFixed(0) : v.toFixed(1)) } = {}) {
    Object.assign(this, { title, lines, unit, stacked, format });
    this.svg = svg("svg", { viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img" });
    this.from = element("span");
    this.value = element("span", null, { class: "now" });
    this.top = element("span", null, { class: "top", "aria-hidden": "true" });
    this.tip = element("div", null, { class: "tip", hidden: true });
    this.cursor = element("div", null, { class: "cursor", hidden: true });
    const legend = lines.length > 1 ? element("span", lines.map((l) => element("span", [element("i", null, { class: "key " + l.kind }), l.name])), { class: "legend" }) : null;
    this.plot = element("div", [this.svg, this.top, this.cursor, this.tip], { class: "plot" });
    this.root = element("figure", [element("figcaption", [element("h3", title), legend, this.value]), this.plot, element("div", [this.from, element("span", "now")], { class: "ends", "aria-hidden": "true" })], { class: "card chart" });
    this.plot.addEventListener("pointermove", (e) => this.point(e));
    this.plot.addEventListener("pointerleave", () => { this.tip.hidden = this.cursor.hidden = true; });
  }

  // samples: [{at (seconds), values: [one per line]}], oldest first; now: the right edge; span: the seconds that are shown.
  draw(samples, now, span) {
    Object.assign(this, { samples, now, span });
    this.from.textContent = span < 100 ? `${Math.round(span)} s ago` : `${Math.round(span / 60)} min ago`;
    const total = (s) => this.stacked ? s.values.reduce((a, b) => a + b, 0) : Math.max(...s.values);
    const top = roundUp(Math.max(1, ...samples.map(total)));
    const x = (at) => LEFT + (W - LEFT) * (1 - (now - at) / this.span), y = (v) => TOP + (H - TOP - BOTTOM) * (1 - v / top);
    const grid = [0, 0.5, 1].map((part) => svg("line", { class: "grid", x1: LEFT, x2: W, y1: y(top * part), y2: y(top * part) }));
    const shapes = [];
    let floor = samples.map(() => 0);
    this.lines.forEach((line, k) => {
      const heights = samples.map((s, i) => s.values[k] + (this.stacked ? floor[i] : 0));
      if (samples.length > 1) {
        const path = samples.map((s, i) => `${x(s.at).toFixed(1)} ${y(heights[i]).toFixed(1)}`);
        const back = samples.map((s, i) => `${x(s.at).toFixed(1)} ${y(this.stacked ? floor[i] : 0).toFixed(1)}`).reverse();
        shapes.unshift(svg("path", { class: "line " + line.kind, d: "M" + path.join("L") }));
        shapes.unshift(svg("path", { class: "area " + line.kind, d: "M" + path.join("L") + "L" + back.join("L") + "Z" }));
      }
      if (this.stacked) floor = heights;
    });
    this.svg.replaceChildren(...grid, ...shapes);
    const last = samples.at(-1), said = last ? this.lines.map((l, k) => `${this.format(last.values[k])}${this.lines.length > 1 ? " " + l.name : ""}`).join(", ") : "nothing yet";
    this.value.textContent = last ? this.lines.map((l, k) => this.format(last.values[k])).join(" · ") + (this.unit ? " " + this.unit : "") : "";
    this.top.textContent = this.format(top);
    this.svg.setAttribute("aria-label", `${this.title}: ${said} ${this.unit}; at most ${this.format(Math.max(0, ...samples.map(total)))} in the last ${Math.round(span)} seconds`);
  }

  point(e) {
    if (!this.samples?.length) return;
    const box = this.plot.getBoundingClientRect(), at = this.now - this.span * (1 - (e.clientX - box.left) / box.width);
    const s = this.samples.reduce((a, b) => Math.abs(b.at - at) < Math.abs(a.at - at) ? b : a);
    const left = box.width * (1 - (this.now - s.at) / this.span);
    this.tip.hidden = this.cursor.hidden = false;
    this.cursor.style.left = left + "px";
    const ago = Math.round(this.now - s.at);
    this.tip.replaceChildren(...this.lines.map((l, k) => element("div", [element("i", null, { class: "key " + l.kind }), `${this.format(s.values[k])} ${l.name ?? this.unit}`])), element("small", ago ? `${ago} s ago` : "now"));
    this.tip.style.left = Math.max(0, Math.min(left + 10, box.width - this.tip.offsetWidth)) + "px";
  }
}

// Parts of a whole against a limit. parts: [{name, value, kind}].
export function meter(title, parts, limit, format, note = "") {
  const sum = parts.reduce((a, p) => a + p.value, 0), whole = Math.max(limit || 0, sum, 1e-9);
  const bar = element("div", parts.filter((p) => p.value > 0).map((p) => {
    const e = element("i", null, { class: p.kind });
    e.style.width = 100 * p.value / whole + "%";
    return e;
  }), { class: "bar", role: "meter", "aria-label": title, "aria-valuemin": "0", "aria-valuemax": String(whole), "aria-valuenow": String(sum), "aria-valuetext": limit ? `${format(sum)} of ${format(limit)}` : format(sum) });
  const legend = parts.filter((p) => p.name).map((p) => element("span", [element("i", null, { class: "key " + p.kind }), `${p.name} ${format(p.value)}`]));
  return element("div", [
    element("div", [element("h4", title), element("span", [element("b", format(sum)), limit ? ` of ${format(limit)}` : ""])], { class: "meter-head" }),
    bar, element("div", [...legend, note ? element("span", note) : null], { class: "legend" }),
  ], { class: "meter" });
}

// How often out of how many.
export function rate(title, hits, misses, what) {
  const all = hits + misses, part = all ? hits / all : 0;
  const fill = element("i", null, { class: "one" });
  fill.style.width = 100 * part + "%";
  return element("div", [
    element("div", [element("h4", title), element("b", all ? `${Math.floor(100 * part)} %` : "–")], { class: "meter-head" }),
    element("div", fill, { class: "bar", role: "meter", "aria-label": title, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": String(Math.floor(100 * part)) }),
    element("div", element("span", all ? what(hits, all) : "nothing asked yet"), { class: "legend" }),
  ], { class: "meter" });
}

// Columns of a histogram. buckets: [{upTo, count}], the last upTo is Infinity.
export function columns(title, buckets, format, facts) {
  const most = Math.max(1, ...buckets.map((b) => b.count));
  const bars = buckets.map((b, i) => {
    const e = element("i", null, { title: `${b.upTo === Infinity ? "over " + format(buckets[i - 1]?.upTo ?? 0) : "up to " + format(b.upTo)}: ${b.count}` });
    e.style.height = (b.count ? Math.max(3, 100 * b.count / most) : 0) + "%";
    return e;
  });
  const ends = buckets.length > 1 ? [element("span", format(buckets[0].upTo)), element("span", format(buckets.at(-2).upTo) + "+")] : [];
  return element("figure", [
    element("figcaption", [element("h3", title), element("span", facts, { class: "now" })]),
    element("div", bars, { class: "columns", role: "img", "aria-label": `${title}: ${facts}` }),
    element("div", ends, { class: "ends", "aria-hidden": "true" }),
  ], { class: "card" });
}
