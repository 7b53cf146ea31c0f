// dashboard.js: the server's counters, read every other second, as charts.
import { pause, request, server } from "./api.js";
import { agents, branches } from "./book.js";
import { columns, meter, rate, TimeChart } from "./chart.js";
import { $, bytes, count, duration, element, many } from "./dom.js";
import { runs } from "./runs.js";

const SPAN = 300, EVERY = 2000;

// ---- reading ----

// {name: number or {labels: number}} from the text format of Prometheus.
export function parseMetrics(text) {
  const values = {};
  for (const line of text.split("\n")) {
    const m = /^hearth_(\w+)(?:\{([^}]*)\})? (\S+)$/.exec(line);
    if (!m) continue;
    if (m[2] === undefined) values[m[1]] = Number(m[3]);
    else (values[m[1]] ??= {})[m[2]] = Number(m[3]);
  }
  return values;
}

// Buckets of a histogram, each with its own count, without the empty ends.
function buckets(v, name) {
  let before = 0;
  const all = Object.entries(v[name + "_bucket"] ?? {}).map(([label, sum]) => {
    const edge = /le="([^"]+)"/.exec(label)[1], own = sum - before;
    before = sum;
    return { upTo: edge === "+Inf" ? Infinity : Number(edge), count: own };
  });
  let from = all.findIndex((b) => b.count), to = all.findLastIndex((b) => b.count);
  if (from < 0) return [];
  from = Math.max(0, from - 1);
  to = Math.min(all.length - 1, to + 1);
  return all.slice(from, to + 1);
}

// An estimate from the buckets: within the one that holds it, evenly.
function quantile(list, part) {
  const all = list.reduce((a, b) => a + b.count, 0);
  let sum = 0, low = 0;
  for (const b of list) {
    if (sum + b.count >= part * all && b.count) return b.upTo === Infinity ? low : low + (b.upTo - low) * (part * all - sum) / b.count;
    sum += b.count;
    low = b.upTo;
  }
  return low;
}

const history = []; // [{at, v}]
// A counter; those told apart by a label, together or the one with it.
function get(v, name, label) {
  const value = v[name];
  if (typeof value !== "object") return value ?? 0;
  const all = Object.entries(value).filter(([l]) => !label || l.includes(`"${label}"`));
  return all.reduce((sum, [, n]) => sum + n, 0);
}

async function sample() {
  const at = performance.now() / 1000;
  const v = parseMetrics(await (await request("metrics", { quiet: $("dashboard").hidden })).text());
  // Counters that fall: the server began anew.
  if (history.length && get(v, "requests_total") < get(history.at(-1).v, "requests_total")) history.length = 0;
  history.push({ at, v });
  while (history.length > 1 && at - history[0].at > SPAN + 10) history.shift();
}

function pace(name, label) {
  return (now, before) => Math.max(0, get(now.v, name, label) - get(before.v, name, label)) / (now.at - before.at);
}
function perPass(now, before) {
  const passes = now.v.passes_total - before.v.passes_total;
  return passes > 0 ? (now.v.pass_tokens_total - before.v.pass_tokens_total) / passes : 0;
}
const series = (...makers) => history.slice(1).map((h, i) => ({ at: h.at, values: makers.map((make) => make(h, history[i])) }));

// ---- showing ----

const whole = (v) => v.toFixed(0);
const charts = [
  [new TimeChart("Generated", [{ kind: "one" }], { unit: "tokens/s" }), () => series(pace("completion_tokens_total"))],
  [new TimeChart("Prompts", [{ name: "read", kind: "two" }, { name: "from memory", kind: "one" }, { name: "from disk", kind: "three" }], { unit: "tokens/s", stacked: true }),
    () => series(pace("prompt_tokens_computed_total"), pace("kv_tokens_remembered_total", "hot"), pace("kv_tokens_remembered_total", "warm"))],
  [new TimeChart("Requests", [{ name: "running", kind: "one" }, { name: "waiting", kind: "two" }], { format: whole }), () => series((h) => h.v.running, (h) => h.v.waiting)],
  [new TimeChart("Batch", [{ kind: "one" }], { unit: "tokens a pass" }), () => series(perPass)],
];

function headline(value, name, detail) {
  return element("div", [element("b", value), element("span", name), element("small", detail)], { class: "figure" });
}

function headlines(v) {
  const first = buckets(v, "first_token_seconds"), asked = v.prompt_tokens_computed_total + v.prompt_tokens_remembered_total;
  const rates = series(pace("completion_tokens_total"));
  const recent = rates.slice(-3);
  const out = [
    headline((recent.reduce((a, s) => a + s.values[0], 0) / Math.max(1, recent.length)).toFixed(1), "tokens/s now", `${count(v.completion_tokens_total)} since the start`),
    headline(asked ? Math.floor(100 * v.prompt_tokens_remembered_total / asked) + " %" : "–", "of prompts remembered", `${count(v.prompt_tokens_remembered_total)} of ${count(asked)} tokens`),
  ];
  out.push(headline(duration(get(v, "kv_saved_seconds_total")), "of computing saved", "by prompts that were not read again"));
  out.push(headline(first.length ? duration(quantile(first, 0.5)) : "–", "to the first token", first.length ? `95 of 100 within ${duration(quantile(first, 0.95))}` : "median, once there are answers"));
  out.push(headline(count(v.answers_finished_total), v.answers_finished_total === 1 ? "answer" : "answers", `${v.running} running, ${v.waiting} waiting` + (v.requests_refused_total ? `, ${v.requests_refused_total} refused` : "")));
  return out;
}

function tierCounts() {
  const counts = { hot: 0, warm: 0, cold: 0 };
  for (const b of branches.values()) if (b.agent) counts[b.agent.tier]++;
  return counts;
}

function memoryCard(v) {
  const hot = get(v, "kv_bytes", "hot"), running = Math.min(v.kv_running_bytes, hot);
  const parts = [
    element("h3", "Conversations"),
    meter("Hot: in memory", [{ name: "running", value: running, kind: "hot" }, { name: "remembered", value: hot - running, kind: "hot soft" }], get(v, "kv_budget_bytes", "hot"), bytes),
    meter("Warm: on disk", [{ value: get(v, "kv_bytes", "warm"), kind: "warm" }], get(v, "kv_budget_bytes", "warm"), bytes, v.store_waiting ? `${count(v.store_waiting)} wait to be written` : "all written"),
  ];
  if (agents.known) {
    const c = tierCounts();
    parts.push(meter("Agents", [{ name: "hot", value: c.hot, kind: "hot" }, { name: "warm", value: c.warm, kind: "warm" }, { name: "cold", value: c.cold, kind: "cold" }], 0, count));
  }
  if (v.store_degraded) parts.push(element("p", "The disk fails or is full: conversations are in memory only.", { class: "problem", role: "alert" }));
  return element("section", parts, { class: "card" });
}

function hitsCard(v) {
  const remembered = get(v, "kv_tokens_remembered_total"), warm = get(v, "kv_tokens_remembered_total", "warm");
  return element("section", [
    element("h3", "Hits"),
    rate("Requests", v.kv_hits_total, v.kv_misses_total, (h, all) => `${count(h)} of ${many(all, "request")} found something remembered`),
    rate("Prompt tokens", remembered, v.prompt_tokens_computed_total, (h) => `${count(h - warm)} from memory, ${count(warm)} from disk`),
    rate("Weights", v.weights_hits_total, v.weights_misses_total, (h, all) => `${count(h)} of ${count(all)} matrices were ready`),
  ], { class: "card" });
}

function weightsCard(v) {
  const packed = v.weights_packed_bytes, mapped = Math.min(v.weights_mapped_bytes, packed);
  const list = [{ name: "packed now", value: packed - mapped, kind: "hot" }, { name: "from an earlier start", value: mapped, kind: "warm" }, { name: "as in the file", value: v.weights_raw_bytes, kind: "cold" }];
  const facts = [["Packing saved", duration(v.weights_saved_seconds)], ["Given up for room", count(v.weights_evictions_total)], ["Blocks given up, memory", count(get(v, "kv_evictions_total", "hot"))], ["Blocks given up, disk", count(get(v, "kv_evictions_total", "warm"))]];
  return element("section", [element("h3", "Weights"), meter("In use", list.filter((p) => p.value), 0, bytes),
    element("dl", facts.map(([name, value]) => element("div", [element("dt", name), element("dd", value)])))], { class: "card" });
}

function latencies(v) {
  return [["To the first token", "first_token_seconds"], ["Between tokens", "between_tokens_seconds"]].map(([title, name]) => {
    const list = buckets(v, name);
    return columns(title, list, duration, list.length ? `${duration(quantile(list, 0.5))} median · ${duration(quantile(list, 0.95))} p95` : "nothing yet");
  });
}

function show() {
  const now = history.at(-1);
  if (!now || $("dashboard").hidden) return;
  $("headlines").replaceChildren(...headlines(now.v));
  const span = Math.min(SPAN, Math.max(60, now.at - history[0].at));
  for (const [chart, make] of charts) chart.draw(make(), now.at, span);
  $("latency").replaceChildren(...latencies(now.v));
  $("caches").replaceChildren(memoryCard(now.v), hitsCard(now.v), weightsCard(now.v));
}

export function showDashboard() {
  if (!$("charts").children.length) $("charts").append(...charts.map(([chart]) => chart.root));
  show();
}

export async function watchMetrics() {
  for (;;) {
    // Somebody looks, or something happens that they may want to see later.
    if (!document.hidden && server.up && (!$("dashboard").hidden || runs.size)) {
      await sample().then(show, (problem) => {
        if (!$("dashboard").hidden && server.up && problem.message && !(problem instanceof TypeError)) $("headlines").replaceChildren(element("p", problem.message, { class: "problem", role: "alert" }));
      });
    }
    await pause(EVERY);
  }
}
