// book.js: the conversations.
//
// A branch is an agent of the server: a name and its messages. Branches of one conversation are named NAME, NAME.2, NAME.3, so that every browser sees that they belong
// together; where they part is seen from their messages. The server keeps the messages. This browser keeps a branch only as long as the server does not know it.
import { getJson, Refused, request, server } from "./api.js";
import { prefs, readLocal, writeLocal } from "./prefs.js";

export const branches = new Map(); // id -> {id, messages (null: not read yet), model (that was chosen for it), agent (null: unknown to the server), local, seen (the agent's last use that is in here), changed}
export const agents = { known: null }; // null: not asked yet; false: this server has no such route

const newName = () => "chat-" + Date.now().toString(36) + Math.random().toString(36).slice(2, 6);
export const familyOf = (id) => /^(chat-[a-z0-9]+)\.\d+$/.exec(id)?.[1] ?? id;

export function textOf(message) {
  const { content } = message;
  if (typeof content === "string") return content;
  if (Array.isArray(content)) return content.map((part) => part.text ?? `[${part.type}]`).join("\n");
  return "";
}

// Names a text by all that was said up to its end, so that equal beginnings have equal names.
function chainName(before, message) {
  let a = 0xdeadbeef ^ before.length, b = 0x41c6ce57;
  const text = before + "\0" + message.role + "\0" + textOf(message).trim() + "\0" + JSON.stringify(message.tool_calls ?? 0);
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    a = Math.imul(a ^ c, 2654435761);
    b = Math.imul(b ^ c, 1597334677);
  }
  return (a >>> 0).toString(36) + (b >>> 0).toString(36);
}
export function chain(messages) {
  let name = "";
  return messages.map((m) => (name = chainName(name, m)));
}

// ---- keeping ----

// Other pages of this browser keep theirs in the same place: only what this one knows better is changed.
const gone = new Set();
export function saveLocal() {
  const out = readLocal();
  for (const b of branches.values()) {
    if (b.local && b.messages?.length && !(out[b.id]?.changed > b.changed)) out[b.id] = { messages: b.messages, model: b.model, seen: b.seen, changed: b.changed };
    else if (!b.local && b.messages) delete out[b.id];
  }
  for (const id of gone) delete out[id];
  return writeLocal(out);
}

// What another page has changed meanwhile comes in; what this one is busy with stays.
export function readBook(busy = () => false) {
  for (const [id, { messages, model, seen, changed }] of Object.entries(readLocal())) {
    const b = branches.get(id) ?? { id, messages: null, agent: null, local: true, changed: 0 };
    if (gone.has(id) || b.changed >= changed || busy(id)) continue;
    // What was being answered when its page went away has no end.
    for (const m of messages) if (m.note?.state) m.note = { ...m.note, state: undefined, finish: "interrupted" };
    branches.set(id, Object.assign(b, { messages, model, seen, changed, local: true }));
  }
}

export function newBranch(messages = []) {
  const b = { id: newName(), messages, model: modelOf(null), agent: null, local: true, changed: Date.now() };
  branches.set(b.id, b);
  return b;
}

// The same conversation up to a message (not included), under a name of its own.
export function fork(branch, upTo) {
  const family = familyOf(branch.id);
  let n = 2;
  for (const id of branches.keys()) if (familyOf(id) === family) n = Math.max(n, 1 + Number(id.slice(family.length + 1) || 1));
  const b = { id: `${family}.${n}`, messages: structuredClone(branch.messages.slice(0, upTo)), model: modelOf(branch), agent: null, local: true, changed: Date.now() };
  if (!/^chat-/.test(family)) b.id = newName();
  branches.set(b.id, b);
  return b;
}

// The model that answers here: the one chosen for it, else the one it was with, else the one chosen last.
export const modelOf = (branch) => [branch?.model, branch?.agent?.model, prefs.model].find((name) => server.models.includes(name)) ?? server.models[0] ?? "";

// ---- families ----

const usedAt = (b) => Math.max(b.agent ? b.agent.last_used * 1000 : 0, b.local ? b.changed : 0);
const order = { hot: 0, warm: 1, cold: 2 };

export function title(b) {
  const first = b.messages?.find((m) => m.role === "user");
  return (first ? textOf(first) : b.agent?.title ?? "").replace(/\s+/g, " ").trim().slice(0, 80) || b.id;
}

// Conversations, the last used first.
export function families() {
  const all = new Map();
  for (const b of branches.values()) {
    if (!b.agent && !b.messages?.length) continue;
    const id = familyOf(b.id);
    if (!all.has(id)) all.set(id, []);
    all.get(id).push(b);
  }
  return [...all].map(([id, list]) => {
    list.sort((x, y) => usedAt(y) - usedAt(x));
    const known = list.filter((b) => b.agent);
    return {
      id, branches: list, newest: list[0], used: usedAt(list[0]), title: title(list[0]),
      tier: known.map((b) => b.agent.tier).sort((x, y) => order[x] - order[y])[0] ?? null,
      tokens: list[0].agent?.tokens ?? null,
      pinned: known.some((b) => b.agent.pinned),
      running: known.some((b) => b.agent.running),
    };
  }).sort((x, y) => y.used - x.used);
}

// The names of all texts in the branches of this one's conversation: [branch, names] each.
export function familyChains(branch) {
  const family = familyOf(branch.id);
  return [...branches.values()].filter((b) => b.messages && familyOf(b.id) === family).map((b) => [b, chain(b.messages)]);
}

// The branches that part at this message: one per version, this one among them, in the order of their names.
export function versions(branch, index, chains) {
  const own = chains.find(([b]) => b === branch)[1], seen = new Map(), family = familyOf(branch.id);
  for (const [b, names] of chains) {
    if (names.length <= index || (index > 0 && names[index - 1] !== own[index - 1])) continue;
    const had = seen.get(names[index]);
    if (!had || b === branch || (had !== branch && usedAt(b) > usedAt(had))) seen.set(names[index], b);
  }
  const number = (b) => Number(b.id.slice(family.length + 1) || 1);
  return [...seen.values()].sort((x, y) => number(x) - number(y));
}

// ---- the server's side ----

const differs = (x, y) => !x || !y || x.last_used !== y.last_used || x.tokens !== y.tokens;

// The list of agents as it is now: whole, or now and then only those used last, which is enough while thousands wait. Those that changed.
const NEWEST = 100, WHOLE_EVERY = 15;
let asked = 0;
export async function syncAgents(whole = false) {
  let list, more;
  try {
    ({ data: list, has_more: more } = await getJson(whole || asked++ % WHOLE_EVERY === 0 ? "v1/agents" : `v1/agents?limit=${NEWEST}`));
  } catch (problem) {
    if (problem instanceof Refused && [404, 405].includes(problem.status)) agents.known = false;
    return [];
  }
  agents.known = true;
  const there = new Set(), changed = [];
  for (const agent of list) {
    there.add(agent.id);
    const b = branches.get(agent.id) ?? { id: agent.id, messages: null, agent: null, local: false, changed: 0 };
    branches.set(agent.id, b);
    if (differs(b.agent, agent)) changed.push(b);
    b.agent = agent;
  }
  for (const b of more ? [] : [...branches.values()]) {
    if (there.has(b.id) || !b.agent) continue;
    // The server no longer knows it. What this page has read of it stays here.
    b.agent = null;
    b.local = Boolean(b.messages?.length);
    if (!b.local) branches.delete(b.id);
  }
  return changed;
}

// Reads a branch's messages from the server, unless this browser knows more than it does.
export async function load(branch, own = false) {
  if (!agents.known || (!branch.agent && !branch.local)) return;
  let agent;
  try {
    agent = await getJson("v1/agents/" + encodeURIComponent(branch.id));
  } catch (problem) {
    if (problem instanceof Refused && problem.status === 404) {
      branch.agent = null;
      if (!branch.messages) branches.delete(branch.id);
    }
    return;
  }
  const { messages, ...rest } = agent;
  branch.agent = rest;
  adopt(branch, messages ?? [], own);
  saveLocal();
}

// Which messages hold. own: the server's state comes from this page's own request.
function adopt(branch, theirs, own) {
  const mine = branch.messages ?? [], a = chain(mine), b = chain(theirs), used = branch.agent.last_used;
  const begins = (x, y) => x.every((name, i) => name === y[i]);
  const ahead = branch.local && begins(b, a) && mine.length > theirs.length; // this browser knows more
  // The same up to an answer that was cut off here: what this browser showed of it holds.
  const cut = mine.length === theirs.length && begins(b.slice(0, -1), a) && a.at(-1) !== b.at(-1);
  const kept = branch.local && !begins(a, b) && (own || cut || branch.seen === undefined || used === branch.seen);
  if (own || branch.seen === undefined) branch.seen = used;
  if (ahead || kept) return;
  branch.local = false;
  if (!branch.messages || mine.length !== theirs.length || !begins(a, b)) branch.messages = theirs;
}

export async function loadFamily(id) {
  const list = [...branches.values()].filter((b) => familyOf(b.id) === id && b.messages === null);
  await Promise.all(list.map((b) => load(b)));
}

export async function act(branch, what, body) {
  const agent = await (await request(`v1/agents/${encodeURIComponent(branch.id)}/${what}`, { method: "POST", body: body ?? {} })).json();
  return agent;
}

export async function remove(list) {
  for (const b of list) {
    branches.delete(b.id);
    gone.add(b.id);
    if (b.agent) {
      await request("v1/agents/" + encodeURIComponent(b.id), { method: "DELETE" }).catch((problem) => {
        if (!(problem instanceof Refused && problem.status === 404)) throw problem;
      });
    }
  }
  saveLocal();
}
