// log.js: shows a conversation.
import { familyChains, textOf, versions } from "./book.js";
import { button, copyButton, count, duration, element, icon } from "./dom.js";
import { showMarkdown } from "./markdown.js";
import { factsOf } from "./prefs.js";
import { runs } from "./runs.js";

const articles = new WeakMap(); // message -> its article
let actions = {};               // set by the page: edit, retry, proceed, open
let editing = null;             // the message that is being edited
export const onMessage = (given) => { actions = given; };

// ---- below a message ----

function pager(branch, index, list) {
  if (list.length < 2) return null;
  const at = list.indexOf(branch), go = (to) => actions.open(list[to], index);
  const what = branch.messages[index].role === "assistant" ? "answer" : "message";
  return element("span", [
    button("", () => go(at - 1), { icon: "left", label: `Previous version of this ${what}`, disabled: at <= 0 }),
    element("span", `${at + 1} / ${list.length}`, { "aria-label": `Version ${at + 1} of ${list.length}` }),
    button("", () => go(at + 1), { icon: "right", label: `Next version of this ${what}`, disabled: at >= list.length - 1 }),
  ], { class: "pager", role: "group", "aria-label": "Versions" });
}

function factsLine(f) {
  const part = f.prompt ? f.cached / f.prompt : 0, percent = Math.floor(100 * part);
  const fill = element("i");
  fill.style.width = percent + "%";
  const remembered = element("span", [element("span", fill, { class: "gauge", "aria-hidden": "true" }), `${percent} % remembered`], {
    class: "fact", title: `${count(f.cached)} of ${count(f.prompt)} prompt tokens were remembered, ${count(f.prompt - f.cached)} were read anew`,
  });
  return [
    element("span", `${f.rate >= 100 ? f.rate.toFixed(0) : f.rate.toFixed(1)} tokens/s`, { class: "fact", title: `${count(f.tokens)} tokens` }),
    element("span", `first after ${duration(f.first)}`, { class: "fact", title: "Time from asking to the first token" }),
    remembered,
  ];
}

const endings = { stopped: "Stopped", interrupted: "Interrupted", length: "Cut off at the limit of tokens" };

function assistantFoot(branch, index, facts) {
  const message = branch.messages[index], note = message.note ?? {}, last = index === branch.messages.length - 1;
  const finish = note.finish ?? facts?.finish;
  const out = [];
  if (endings[finish]) out.push(element("span", endings[finish], { class: "fact ending" }));
  else if (note.continued) out.push(element("span", "Continued", { class: "fact ending", title: "This answer was interrupted and went on from there" }));
  if (facts) out.push(...factsLine(facts));
  if (!runs.has(branch.id)) {
    const tools = [];
    if (last && message.content && !note.shaped && (note.problem || endings[finish])) tools.push(button("Continue", () => actions.proceed(branch), { icon: "play" }));
    tools.push(button("Retry", () => actions.retry(branch, index), { icon: "retry", label: "Retry: answer again in a branch", class: "quiet" }));
    if (message.content) tools.push(copyButton(() => textOf(message), { label: "Copy the answer" }));
    out.push(element("span", tools, { class: "tools" + (last ? " stay" : "") }));
  }
  return out;
}

function foot(branch, index, facts, around) {
  const message = branch.messages[index];
  if (runs.get(branch.id)?.message === message) return [];
  if (message.role === "assistant") return [pager(branch, index, around), ...assistantFoot(branch, index, facts)];
  if (message.role === "tool") return [];
  const tools = [copyButton(() => textOf(message), { label: "Copy the message" })];
  if (!runs.has(branch.id)) tools.unshift(button("Edit", () => beginEdit(branch, index), { icon: "edit", label: "Edit this message in a branch of the conversation" }));
  return [element("span", tools, { class: "tools" }), pager(branch, index, around)];
}

// ---- a message ----

const waits = {
  waiting: (run) => run && performance.now() - run.began > 2500 ? "Reading" : "",
  busy: () => "The server is busy; waiting for a place",
  away: () => "The server is away; the answer goes on when it is back",
};

function waitLine(message, run) {
  const { state } = message.note ?? {};
  if (!state || (state === "waiting" && message.content)) return null;
  return element("p", [element("span", null, { class: "ember", "aria-hidden": "true" }), element("span", waits[state](run))], { class: "wait" });
}

function problemCard(note) {
  return element("div", [icon("alert"), element("p", [element("strong", note.status === 400 ? "The server refused this request. " : "This did not work. "), note.problem])], { class: "problem", role: "alert" });
}

function toolCalls(message) {
  return (message.tool_calls ?? []).map((call) => element("details", [
    element("summary", [icon("tool"), "Calls ", element("code", call.function?.name ?? "a tool")]),
    element("pre", element("code", typeof call.function?.arguments === "string" ? call.function.arguments : JSON.stringify(call.function?.arguments ?? {}, null, 2))),
  ], { class: "aside" }));
}

function folded(message, name) {
  const text = textOf(message), short = text.replace(/\s+/g, " ").slice(0, 120);
  return element("details", [element("summary", [icon(message.role === "system" ? "sliders" : "tool"), name, element("span", short, { class: "short" })]), element("div", text, { class: "whole" })], { class: "aside" });
}

const names = { user: "You", assistant: "Answer", system: "Instructions", developer: "Instructions", tool: "Result of a tool" };

function makeArticle(message) {
  const article = element("article", [element("h3", names[message.role] ?? message.role, { class: "hidden" })], { class: message.role });
  const body = element("div", null, { class: "body" }), extra = element("div", null, { class: "extra" }), below = element("div", null, { class: "below" });
  article.append(body, extra, below);
  const made = { article, body, extra, below };
  articles.set(message, made);
  return made;
}

// Brings an article up to date. What did not change is not touched, so that focus and selection stay.
export function updateMessage(branch, index, chains = null) {
  const message = branch.messages[index], made = articles.get(message) ?? makeArticle(message), run = runs.get(branch.id);
  const live = run?.message === message, note = message.note ?? {};
  if (!live) chains ??= familyChains(branch);
  const around = live ? [] : versions(branch, index, chains);
  const facts = live || message.role !== "assistant" ? null : note.facts ?? factsOf(chains.find(([b]) => b === branch)[1][index]);
  made.article.setAttribute("aria-busy", String(live));
  made.article.classList.toggle("live", live && Boolean(message.content));
  if (editing !== message) {
    if (message.role === "assistant") showMarkdown(made.body, textOf(message));
    else if (made.text !== textOf(message)) made.body.replaceChildren(message.role === "user" ? textOf(message) : folded(message, names[message.role] ?? message.role));
    made.text = textOf(message);
  }
  made.body.hidden = !made.text && editing !== message;
  const wait = live ? waitLine(message, run) : null;
  const extraKey = JSON.stringify([note.problem, note.state, wait?.textContent, note.thought?.length, message.tool_calls]);
  if (made.extraKey !== extraKey) {
    made.extraKey = extraKey;
    const thought = note.thought ? element("details", [element("summary", [icon("tool"), "Thoughts"]), element("div", note.thought, { class: "whole" })], { class: "aside" }) : null;
    made.extra.replaceChildren(...[thought, ...toolCalls(message), wait, note.problem ? problemCard(note) : null].filter(Boolean));
  }
  const belowKey = JSON.stringify([live, run !== undefined, branch.id, index, branch.messages.length, facts, note.finish, note.problem, note.continued, around.map((b) => b.id), editing === message]);
  if (made.belowKey !== belowKey) {
    made.belowKey = belowKey;
    made.below.replaceChildren(...(editing === message ? [] : foot(branch, index, facts, around)).filter(Boolean));
  }
  return made.article;
}

export function messageNodes(branch) {
  const chains = familyChains(branch);
  return branch.messages.map((m, i) => updateMessage(branch, i, chains));
}

// ---- editing ----

export function beginEdit(branch, index) {
  const message = branch.messages[index];
  if (editing) endEdit();
  editing = message;
  const made = articles.get(message);
  const area = element("textarea", textOf(message), { "aria-label": "Edit the message", rows: "1" });
  const grow = () => { area.style.height = "auto"; area.style.height = area.scrollHeight + 2 + "px"; };
  const cancel = () => { endEdit(); updateMessage(branch, index); made.article.querySelector(".below button")?.focus(); };
  const send = () => {
    const text = area.value.trim();
    endEdit();
    updateMessage(branch, index);
    if (text) actions.edit(branch, index, text);
  };
  area.addEventListener("input", grow);
  area.addEventListener("keydown", (e) => {
    if (e.key === "Escape") { e.preventDefault(); e.stopPropagation(); cancel(); }
    if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
  });
  const hint = element("span", "The conversation so far stays as it is: this begins a branch.", { class: "hint" });
  made.body.replaceChildren(element("div", [area, element("div", [hint, button("Cancel", cancel), button("Send", send, { kind: "primary small" })], { class: "row" })], { class: "editor" }));
  made.article.classList.add("editing");
  updateMessage(branch, index);
  grow();
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

function endEdit() {
  const made = articles.get(editing);
  made.article.classList.remove("editing");
  made.text = null;
  editing = null;
}
export const isEditing = () => editing !== null;
