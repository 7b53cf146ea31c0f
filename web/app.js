// app.js: the page: conversations in the browser, answers from the server.
import { element, markdown } from "./markdown.js";

const $ = (id) => document.getElementById(id);
const log = $("log"), input = $("input");

// ---- what is kept ----

const stored = (key, fallback) => {
  try { return JSON.parse(localStorage.getItem(key)) ?? fallback; } catch { return fallback; }
};
const settings = stored("hearth.settings", {});
let conversations = stored("hearth.conversations", []);
if (!Array.isArray(conversations)) conversations = [];
let current = null;   // the open conversation, or null for a new one
let running = null;   // {conversation, message, abort}
let up = false;

function save() {
  try {
    localStorage.setItem("hearth.conversations", JSON.stringify(conversations));
    localStorage.setItem("hearth.settings", JSON.stringify(settings));
  } catch {
    announce("The browser has no room left: older conversations were not saved.");
  }
}

const newId = () => Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
const titleOf = (c) => c?.title || "New conversation";
const announce = (text) => { $("announce").textContent = text; };

// ---- the server ----

function headers() {
  const h = { "Content-Type": "application/json" };
  if (settings.key) h.Authorization = "Bearer " + settings.key;
  return h;
}

function setState(isUp, text) {
  up = isUp;
  $("state").className = isUp ? "up" : "down";
  $("state-text").textContent = text;
}

async function look() {
  try {
    const reply = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(4000) });
    const health = await reply.json();
    setState(true, health.model);
  } catch {
    setState(false, "the server is away");
  }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function untilUp(signal) {
  for (;;) {
    await look();
    if (up || signal.aborted) return;
    await pause(700);
  }
}

// The events of a stream, parsed.
async function* events(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const line = part.split("\n").find((l) => l.startsWith("data: "));
      if (line) yield line.slice(6);
    }
  }
}

function requestOf(conversation, upTo) {
  const messages = conversation.messages.slice(0, upTo).map(({ role, content }) => ({ role, content }));
  if (settings.system) messages.unshift({ role: "system", content: settings.system });
  const body = { messages, stream: true, stream_options: { include_usage: true }, user: conversation.id };
  for (const key of ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"])
    if (settings[key] !== undefined && settings[key] !== "") body[key] = Number(settings[key]);
  return body;
}

// Asks once; returns true when the answer came to its end.
async function ask(conversation, message, upTo, abort, onText) {
  const began = performance.now();
  let first = 0;
  const reply = await fetch("v1/chat/completions", { method: "POST", headers: headers(), body: JSON.stringify(requestOf(conversation, upTo)), signal: abort.signal });
  if (!reply.ok) {
    const detail = await reply.json().catch(() => null);
    if (reply.status === 401) $("settings").showModal();
    if (reply.status === 429 || reply.status === 503) {
      await pause(1000 * Number(reply.headers.get("Retry-After") ?? 1));
      return false;
    }
    throw new Error(detail?.error?.message ?? "The server answered " + reply.status + ".");
  }
  for await (const data of events(reply)) {
    if (data === "[DONE]") return true;
    const event = JSON.parse(data);
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices[0];
    if (choice?.delta?.content) {
      first ||= performance.now();
      message.content += choice.delta.content;
      onText();
    }
    if (choice?.finish_reason) message.finish = choice.finish_reason;
    if (event.usage) {
      const seconds = (performance.now() - (first || began)) / 1000;
      message.facts = {
        first: ((first || performance.now()) - began) / 1000,
        rate: event.usage.completion_tokens > 1 && seconds > 0 ? (event.usage.completion_tokens - 1) / seconds : 0,
        tokens: event.usage.completion_tokens,
        prompt: event.usage.prompt_tokens,
        cached: event.usage.prompt_tokens_details?.cached_tokens ?? 0,
      };
    }
  }
  return false;
}

// Answers the conversation as it stands; when the server goes away, waits for it and begins the answer again.
async function answer(conversation) {
  const message = { role: "assistant", content: "", finish: null };
  const upTo = conversation.messages.length;
  conversation.messages.push(message);
  const abort = new AbortController();
  running = { conversation, message, abort };
  show();
  let queued = false;
  const onText = () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => { queued = false; refresh(message); });
  };
  try {
    for (;;) {
      message.content = "";
      try {
        if (await ask(conversation, message, upTo, abort, onText)) break;
      } catch (problem) {
        if (abort.signal.aborted || !(problem instanceof TypeError)) throw problem;
      }
      message.away = true;
      refresh(message);
      await untilUp(abort.signal);
      if (abort.signal.aborted) break;
      message.away = false;
    }
    if (abort.signal.aborted) message.finish = "stopped";
    else announce("The answer is complete.");
  } catch (problem) {
    if (abort.signal.aborted) message.finish = "stopped";
    else message.problem = problem.message;
  }
  message.away = false;
  conversation.changed = Date.now();
  running = null;
  save();
  show();
}

// ---- showing ----

function facts(message) {
  const f = message.facts;
  const out = [];
  if (message.problem) out.push(element("span", message.problem, { class: "problem", role: "alert" }));
  if (message.away) out.push(element("span", "The server is away; the answer begins again when it is back.", { class: "problem" }));
  if (message.finish === "stopped") out.push(element("span", "Stopped.", { class: "facts" }));
  if (message.finish === "length") out.push(element("span", "Cut off: the limit of tokens is reached.", { class: "facts" }));
  if (f) {
    const part = f.prompt ? f.cached / f.prompt : 0;
    const bar = element("i");
    bar.style.width = Math.round(100 * part) + "%";
    out.push(element("span", `${f.rate.toFixed(1)} tokens/s · first token after ${f.first.toFixed(2)} s ·`, { class: "facts" }));
    out.push(element("span", [element("span", bar, { class: "remembered", "aria-hidden": "true" }), `${f.cached} of ${f.prompt} prompt tokens remembered`], { class: "facts" }));
  }
  return out;
}

function button(text, action, label) {
  const b = element("button", text, { type: "button", class: "quiet" });
  if (label) b.setAttribute("aria-label", label);
  b.addEventListener("click", action);
  return b;
}

function below(conversation, index) {
  const message = conversation.messages[index];
  if (running?.message === message && !message.away) return element("div", null, { class: "below" });
  const out = message.role === "assistant" ? facts(message) : [];
  if (!running) {
    if (message.role === "user") out.push(button("Edit", () => edit(conversation, index), "Edit this message in a branch of the conversation"));
    else if (index === conversation.messages.length - 1) out.push(button("Retry", () => retry(conversation)));
    out.push(button("Copy", () => navigator.clipboard?.writeText(message.content)));
  }
  return element("div", out, { class: "below" });
}

function fill(article, conversation, index) {
  const message = conversation.messages[index];
  const live = running?.message === message;
  const body = element("div", message.role === "user" ? message.content : [markdown(message.content)], { class: "body" + (live ? " waiting" : "") });
  const who = element("h3", message.role === "user" ? "You" : "Answer", { class: "hidden" });
  article.replaceChildren(who, body, below(conversation, index));
  article.setAttribute("aria-busy", String(live));
}

function welcome() {
  const ideas = ["Hello! Who are you?", "My name is Ada and I live in Turin.", "Tell me a short story about a lamp."];
  const box = element("div", [element("h2", "What shall we talk about?"), element("p", "Conversations stay in this browser; what the model has read, it remembers.")], { class: "welcome" });
  box.append(element("div", ideas.map((idea) => {
    const b = element("button", idea, { type: "button" });
    b.addEventListener("click", () => send(idea));
    return b;
  }), { class: "ideas" }));
  return box;
}

const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 80;
const toEnd = () => { log.scrollTop = log.scrollHeight; };

function refresh(message) {
  if (!current || running?.conversation !== current) return;
  const index = current.messages.indexOf(message), article = log.children[index];
  if (!article) return;
  const follow = nearEnd();
  fill(article, current, index);
  if (follow) toEnd();
}

function showList() {
  conversations.sort((a, b) => b.changed - a.changed);
  $("list").replaceChildren(...conversations.map((c) => {
    const name = element("button", titleOf(c), { type: "button", class: "name", title: titleOf(c) });
    if (c === current) name.setAttribute("aria-current", "true");
    name.addEventListener("click", () => { open(c); $("side").classList.remove("open"); });
    const remove = button("✕", () => removeConversation(c), "Delete " + titleOf(c));
    remove.classList.add("remove");
    return element("li", [name, remove], c === current ? { class: "open" } : {});
  }));
}

function show() {
  showList();
  $("title").textContent = titleOf(current);
  document.title = (current ? titleOf(current) + " · " : "") + "hearth";
  log.replaceChildren(...(current?.messages ?? []).map((m, i) => {
    const article = element("article", null, { class: m.role });
    fill(article, current, i);
    return article;
  }));
  if (!current) log.append(welcome());
  $("stop").hidden = !running;
  $("send").hidden = !!running;
  toEnd();
}

// ---- doing ----

function open(conversation) {
  current = conversation;
  show();
  input.focus();
}

function send(text) {
  text = text.trim();
  if (!text || running) return;
  if (!current) {
    current = { id: newId(), title: text.slice(0, 60), messages: [], changed: Date.now() };
    conversations.push(current);
  }
  current.messages.push({ role: "user", content: text });
  current.changed = Date.now();
  save();
  answer(current);
}

function retry(conversation) {
  conversation.messages.pop();
  answer(conversation);
}

// A branch: the messages before stay shared in the server's memory, so it costs only what is new.
function edit(conversation, index) {
  const text = conversation.messages[index].content;
  const branch = { id: newId(), title: conversation.title, messages: structuredClone(conversation.messages.slice(0, index)), changed: Date.now() };
  if (index === 0) branch.title = "";
  conversations.push(branch);
  current = branch;
  show();
  input.value = text;
  grow();
  input.focus();
  announce("This is a branch of the conversation: change the message and send it.");
}

function removeConversation(c) {
  if (running?.conversation === c) running.abort.abort();
  conversations = conversations.filter((other) => other !== c);
  if (current === c) current = null;
  save();
  show();
}

function grow() {
  input.style.height = "auto";
  input.style.height = input.scrollHeight + 2 + "px";
}

$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  if (running) return;
  if (current && !current.title) current.title = input.value.trim().slice(0, 60);
  const text = input.value;
  input.value = "";
  grow();
  send(text);
});
input.addEventListener("input", grow);
input.addEventListener("keydown", (e) => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $("form").requestSubmit();
});
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape" && running && !document.querySelector("dialog[open]")) running.abort.abort();
});
$("stop").addEventListener("click", () => running?.abort.abort());
$("new").addEventListener("click", () => { $("side").classList.remove("open"); open(null); });
$("open-side").addEventListener("click", () => { $("side").classList.add("open"); $("close-side").focus(); });
$("close-side").addEventListener("click", () => $("side").classList.remove("open"));

// ---- settings ----

const form = $("settings").querySelector("form");
function applyTheme() {
  if (settings.theme) document.documentElement.dataset.theme = settings.theme;
  else delete document.documentElement.dataset.theme;
}
$("open-settings").addEventListener("click", () => {
  for (const field of form.elements) if (field.name) field.value = settings[field.name] ?? "";
  $("settings").showModal();
});
$("settings").addEventListener("close", () => {
  for (const field of form.elements) if (field.name) settings[field.name] = field.value;
  applyTheme();
  save();
  look();
});
$("forget").addEventListener("click", () => {
  if (!confirm("Delete all conversations in this browser?")) return;
  running?.abort.abort();
  conversations = [];
  current = null;
  save();
  show();
  $("settings").close();
});

// ---- dashboard ----

const history = { tokens: [], running: [] };
let before = null;

async function readMetrics() {
  const reply = await fetch("metrics", { headers: headers() });
  if (!reply.ok) return null;
  const values = {};
  for (const line of (await reply.text()).split("\n")) {
    const m = /^(hearth_\w+)(?:\{tier="(\w+)"\})? (\S+)$/.exec(line);
    if (m) values[m[1].slice(7) + (m[2] ? "_" + m[2] : "")] = Number(m[3]);
  }
  return values;
}

function chart(svg, values) {
  const top = Math.max(1, ...values), step = 100 / 119, from = 100 - step * (values.length - 1);
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", `M ${from} 40 ` + values.map((v, i) => `L ${(from + i * step).toFixed(2)} ${(39 - 36 * v / top).toFixed(2)}`).join(" ") + " L 100 40 Z");
  svg.replaceChildren(path);
  svg.previousElementSibling.dataset.top = top.toFixed(0);
  svg.setAttribute("aria-label", `${svg.previousElementSibling.textContent}: now ${(values.at(-1) ?? 0).toFixed(1)}, at most ${top.toFixed(1)}`);
}

const bytes = (n) => n >= 1e9 ? (n / 1e9).toFixed(2) + " GB" : n >= 1e6 ? (n / 1e6).toFixed(1) + " MB" : (n / 1e3).toFixed(0) + " kB";

async function tick() {
  if (!$("dashboard").open) return;
  const now = await readMetrics().catch(() => null);
  if (!now) return;
  const at = performance.now() / 1000;
  if (before) {
    history.tokens.push(Math.max(0, (now.completion_tokens_total - before.now.completion_tokens_total) / (at - before.at)));
    history.running.push(now.running);
    for (const list of Object.values(history)) if (list.length > 120) list.shift();
  }
  before = { now, at };
  const asked = now.prompt_tokens_computed_total + now.prompt_tokens_remembered_total;
  const tiles = [
    ["tokens/s now", (history.tokens.at(-1) ?? 0).toFixed(1)],
    ["running · waiting", `${now.running} · ${now.waiting}`],
    ["tokens per pass", now.passes_total ? (now.pass_tokens_total / now.passes_total).toFixed(1) : "0"],
    ["of prompts remembered", asked ? Math.round(100 * now.prompt_tokens_remembered_total / asked) + " %" : "–"],
    [`of ${bytes(now.kv_budget_bytes_hot)} for conversations`, bytes(now.kv_bytes_hot)],
    [`of ${bytes(now.kv_budget_bytes_warm)} for them on disk`, bytes(now.kv_bytes_warm)],
    ["mean time to first token", now.first_token_seconds_count ? (now.first_token_seconds_sum / now.first_token_seconds_count).toFixed(3) + " s" : "–"],
    ["answers", String(now.answers_finished_total)],
    ["tokens generated", String(now.completion_tokens_total)],
  ];
  $("tiles").replaceChildren(...tiles.map(([name, value]) => element("div", [element("b", value), element("span", name)], { class: "tile" })));
  chart($("chart-tokens"), history.tokens);
  chart($("chart-running"), history.running);
}
$("open-dashboard").addEventListener("click", () => { $("dashboard").showModal(); tick(); });
setInterval(tick, 1000);

// ---- begin ----

// What was being answered when the page went away has no end.
for (const c of conversations) for (const m of c.messages) if (m.role === "assistant" && !m.finish && !m.problem) m.finish = "stopped";
applyTheme();
current = null;
show();
look();
setInterval(() => { if (!running) look(); }, 5000);
input.focus();
