// app.js: the page: what is open, what the buttons and keys do.
import { look, onServer, pause, server, watch } from "./api.js";
import { agents, branches, familyOf, families, fork, load, loadFamily, newBranch, readBook, saveLocal, syncAgents, textOf, title } from "./book.js";
import { showDashboard, watchMetrics } from "./dashboard.js";
import { $, announce, button, element } from "./dom.js";
import { beginEdit, isEditing, messageNodes, onMessage, updateMessage } from "./log.js";
import { readModels, toggleOptions } from "./options.js";
import { prefs } from "./prefs.js";
import { answer, onRun, runs, stop } from "./runs.js";
import { onSide, setFilter, showSide } from "./side.js";

const log = $("log"), input = $("input");
let current = null; // the open branch; null: a new conversation

// ---- showing ----

const nearEnd = () => log.scrollHeight - log.scrollTop - log.clientHeight < 90;
const toEnd = () => { log.scrollTop = log.scrollHeight; };

function welcome() {
  const ideas = ["Hello! Who are you?", "My name is Ada and I live in Turin.", "Tell me a short story about a lamp."];
  const box = element("div", [
    element("img", null, { src: "icon.svg", alt: "", width: "56", height: "56" }),
    element("h2", "What shall we talk about?"),
    element("p", agents.known === false ? "What the model has read, it remembers. Conversations stay in this browser." : "What is read once is remembered: tomorrow, after a restart, in every branch."),
    element("div", ideas.map((idea) => button(idea, () => send(idea), { kind: "idea" })), { class: "ideas" }),
  ], { class: "welcome" });
  return box;
}

function showComposer() {
  const busy = runs.has(current?.id);
  if (busy && document.activeElement === $("send")) input.focus();
  $("stop").hidden = !busy;
  $("send").hidden = busy;
  $("send").disabled = !input.value.trim();
}

function showHead() {
  const name = current?.messages?.length || current?.agent ? title(current) : "New conversation";
  $("title").textContent = name;
  document.title = (runs.has(current?.id) ? "… " : "") + (current ? name + " · " : "") + "hearth";
  const tier = current?.agent?.tier;
  $("tier").hidden = !tier;
  if (tier && $("tier").dataset.tier !== tier) {
    $("tier").dataset.tier = tier;
    $("tier").replaceChildren(element("span", null, { class: "tier " + tier, "aria-hidden": "true" }), tier);
  }
}

function show({ end = false } = {}) {
  showHead();
  showSide(current);
  showComposer();
  const box = $("messages");
  const nodes = !current ? [welcome()] : current.messages ? messageNodes(current) : [element("p", "Reading the conversation …", { class: "empty" })];
  if (current || !box.querySelector(".welcome")) {
    const stays = nodes.length === box.children.length && nodes.every((n, i) => n === box.children[i]);
    if (!stays) box.replaceChildren(...nodes);
  }
  box.classList.toggle("center", !current);
  if (end) toEnd();
  showJump();
}

function showJump() {
  $("to-end").hidden = !current || log.scrollHeight - log.scrollTop - log.clientHeight < 300;
}
log.addEventListener("scroll", showJump, { passive: true });
$("to-end").addEventListener("click", toEnd);

let queued = false;
onRun((branch, message, whole) => {
  if (whole) {
    const ended = message && !runs.has(branch.id);
    if (ended && branch === current) sayAnswer(message);
    show({ end: branch === current && nearEnd() });
    return;
  }
  if (branch !== current || queued) return;
  queued = true;
  requestAnimationFrame(() => {
    queued = false;
    const index = current?.messages?.indexOf(message) ?? -1;
    if (index < 0) return;
    const follow = nearEnd();
    updateMessage(current, index);
    if (follow) toEnd();
    showJump();
  });
});

// Read out once, when it is complete; not every token.
function sayAnswer(message) {
  const { problem, finish } = message.note, text = textOf(message);
  if (problem) return; // the alert says it
  if (finish === "stopped" || finish === "interrupted") announce(finish === "stopped" ? "Stopped." : "The answer was interrupted.");
  else announce("Answer: " + (text.length > 500 ? text.slice(0, 500) + " …" : text));
}

// ---- which is open: the address says it ----

const addressOf = (branch) => branch ? "#/c/" + encodeURIComponent(branch.id) : "#/";
function go(branch) {
  closeSide();
  if (location.hash === addressOf(branch)) route();
  else location.hash = addressOf(branch);
}

async function route() {
  const dashboard = location.hash === "#/dashboard";
  $("dashboard").hidden = !dashboard;
  $("chat").hidden = dashboard;
  $("open-dashboard").setAttribute("aria-current", dashboard ? "page" : "false");
  if (dashboard) {
    toggleOptions(false);
    showDashboard();
    $("dashboard-title").focus({ preventScroll: true });
    document.title = "Dashboard · hearth";
    return;
  }
  const id = /^#\/c\/(.+)$/.exec(location.hash)?.[1];
  const wanted = id ? branches.get(decodeURIComponent(id)) ?? null : null;
  if (id && !wanted && agents.known === null) return; // not listed yet
  current = wanted;
  show({ end: true });
  const elsewhere = document.activeElement?.closest("#find, .editor, #options, dialog");
  if (!matchMedia("(pointer: coarse)").matches && !elsewhere) input.focus();
  await readCurrent();
}

async function readCurrent() {
  const opened = current;
  if (!opened) return;
  const had = opened.messages?.length;
  if (!opened.messages) await load(opened);
  await loadFamily(familyOf(opened.id));
  if (current === opened) show({ end: opened.messages?.length !== had });
}
addEventListener("hashchange", route);

// ---- doing ----

function dropEmpty(branch) {
  const last = branch.messages.at(-1);
  if (last?.role === "assistant" && !textOf(last) && !last.tool_calls) branch.messages.pop();
}

function send(text) {
  text = text.trim();
  if (!text || runs.has(current?.id)) return;
  const branch = current ?? newBranch(prefs.options.system?.trim() ? [{ role: "system", content: prefs.options.system.trim() }] : []);
  dropEmpty(branch);
  branch.messages.push({ role: "user", content: text });
  begin(branch);
}

function begin(branch) {
  const done = answer(branch);
  if (branch !== current) go(branch);
  else show({ end: true });
  input.focus();
  return done.then(refreshAgents);
}

function edit(branch, index, text) {
  const old = branch.messages[index], next = fork(branch, index);
  next.messages.push({ role: old.role, content: text });
  if (old.role !== "user") {
    // Other instructions: the rest stays, and its last question is answered again.
    next.messages.push(...structuredClone(branch.messages.slice(index + 1)));
    while (next.messages.length > 1 && next.messages.at(-1).role === "assistant") next.messages.pop();
  }
  begin(next);
}

function retry(branch, index) {
  const old = branch.messages[index];
  if (textOf(old) && !old.note?.problem) return begin(fork(branch, index));
  branch.messages.length = index;
  return begin(branch);
}

function lastOf(role) {
  return current?.messages ? current.messages.findLastIndex((m) => m.role === role) : -1;
}

onMessage({
  edit, retry, proceed: (branch) => begin(branch),
  open: (branch, index) => {
    const top = log.scrollTop;
    go(branch);
    requestAnimationFrame(() => {
      log.scrollTop = top;
      $("messages").children[index]?.querySelector(".pager button:not(:disabled)")?.focus({ preventScroll: true });
    });
  },
});

onSide({
  open: go,
  removed: (family) => { if (current && familyOf(current.id) === family.id) go(null); },
  failed: (problem) => notice(problem.message, 6000),
  changed: () => show(),
});

// ---- the composer ----

function grow() {
  input.style.height = "auto";
  input.style.height = input.scrollHeight + "px";
  showComposer();
}
$("form").addEventListener("submit", (e) => {
  e.preventDefault();
  if (runs.has(current?.id)) return;
  const text = input.value;
  input.value = "";
  grow();
  send(text);
});
input.addEventListener("input", grow);
input.addEventListener("keydown", (e) => {
  if (e.key === "ArrowUp" && !input.value && !runs.has(current?.id) && lastOf("user") >= 0 && !e.altKey) {
    e.preventDefault();
    beginEdit(current, lastOf("user"));
    return;
  }
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $("form").requestSubmit();
});
$("form").addEventListener("click", (e) => { if (e.target === $("form")) input.focus(); });
$("stop").addEventListener("click", () => stop(current));

// ---- the side bar ----

const narrow = matchMedia("(max-width: 820px)");
function openSide() {
  $("side").classList.add("open");
  $("shade").hidden = false;
  $("main").inert = true;
  $("close-side").focus();
}
function closeSide() {
  if (!$("side").classList.contains("open")) return;
  $("side").classList.remove("open");
  $("shade").hidden = true;
  $("main").inert = false;
}
$("open-side").addEventListener("click", openSide);
$("open-side-2").addEventListener("click", openSide);
$("close-side").addEventListener("click", () => { closeSide(); $("open-side").focus(); });
$("shade").addEventListener("click", closeSide);
$("new").addEventListener("click", () => go(null));
$("open-dashboard").addEventListener("click", () => { closeSide(); location.hash = "#/dashboard"; });
$("close-dashboard").addEventListener("click", () => go(current));
$("open-keys").addEventListener("click", () => $("keys").showModal());
$("find").addEventListener("input", () => setFilter($("find").value, current));
$("find").addEventListener("keydown", (e) => {
  if (e.key === "Escape") { $("find").value = ""; setFilter("", current); input.focus(); e.stopPropagation(); }
  if (e.key === "ArrowDown" || e.key === "Enter") { e.preventDefault(); $("list").querySelector(".entry")?.focus(); }
});
$("list").addEventListener("keydown", (e) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[e.key], all = [...$("list").querySelectorAll(".entry")], at = all.indexOf(document.activeElement);
  if (!step || at < 0 || e.altKey) return;
  e.preventDefault();
  (all[at + step] ?? (step < 0 ? $("find") : all[at])).focus();
});

function neighbour(step) {
  const all = families(), at = all.findIndex((f) => current && f.id === familyOf(current.id));
  const to = all[at < 0 ? 0 : at + step];
  if (to) go(to.newest);
}

// ---- keys ----

const altKeys = {
  KeyN: () => { go(null); input.focus(); },
  KeyR: () => { const i = lastOf("assistant"); if (i >= 0 && i === current.messages.length - 1 && !runs.has(current.id)) retry(current, i); },
  KeyC: () => $("messages").lastElementChild?.querySelector(".tools button:has([href='#i-play'])")?.click(),
  KeyO: () => { if (!$("chat").hidden) toggleOptions(); },
  KeyD: () => { if ($("dashboard").hidden) location.hash = "#/dashboard"; else go(current); },
  ArrowUp: () => neighbour(-1),
  ArrowDown: () => neighbour(1),
};
document.addEventListener("keydown", (e) => {
  if (document.querySelector("dialog[open]")) return;
  const command = e.ctrlKey || e.metaKey;
  if (command && !e.altKey && e.key.toLowerCase() === "k") {
    e.preventDefault();
    if (narrow.matches) openSide();
    $("find").focus();
  } else if (command && e.key === "/") {
    e.preventDefault();
    $("keys").showModal();
  } else if (e.altKey && !command && altKeys[e.code]) {
    e.preventDefault();
    altKeys[e.code]();
  } else if (e.key === "Escape") {
    if ($("side").classList.contains("open")) closeSide();
    else if (!$("dashboard").hidden) go(current);
    else stop(current);
  }
});

// ---- the server, coming and going ----

let noticeTimer = 0;
function notice(text, ms = 0) {
  clearTimeout(noticeTimer);
  $("notice").textContent = text;
  $("notice").hidden = !text;
  if (ms) noticeTimer = setTimeout(() => { $("notice").hidden = true; }, ms);
}

onServer((up, before) => {
  document.body.classList.toggle("away", !up);
  if (!up) notice("The server is away. This page waits for it; nothing is lost.");
  else {
    if (before === false) notice("The server is back.", 3000);
    readModels().catch((problem) => notice(problem.message));
    refreshAgents();
  }
});

// The open conversation may have gone on in another browser or tool.
async function refreshAgents() {
  if (!server.up) return;
  const first = agents.known === null, changed = await syncAgents();
  for (const b of changed) if (b.messages && !runs.has(b.id) && !isEditing() && (b === current || !b.local)) await load(b);
  if (!first) show();
  else if (current) await readCurrent();
  else await route(); // perhaps the address names one that is known only now
}

async function watchAgents() {
  for (;;) {
    await pause(runs.size ? 1500 : 3000);
    if (!document.hidden && agents.known !== false) await refreshAgents();
  }
}

addEventListener("pagehide", saveLocal);
setInterval(() => { if (runs.size) saveLocal(); }, 2000);
// The "Reading" of a long prompt appears while nothing else happens.
setInterval(() => { for (const run of runs.values()) if (run.branch === current && !run.message.content) updateMessage(current, current.messages.indexOf(run.message)); }, 1000);

readBook();
route();
look();
watch();
watchAgents();
watchMetrics();
navigator.serviceWorker?.register("worker.js").catch(() => {}); // only where the browser allows it: https or this machine
