// api.js: talking to the server: the key, whether it is there, requests and streams.
import { prefs, savePrefs } from "./prefs.js";

export class Refused extends Error {
  constructor(status, message, retry) {
    super(message);
    this.status = status;
    this.retry = retry; // seconds to wait, or undefined
  }
}

export const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal?.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// ---- the key ----

let askUser = async () => null; // set by the page: asks for a key, null when none was given
let asking = null, declined = false;
export const onKeyWanted = (ask) => { askUser = ask; };

// All requests that were refused for want of a key wait for one and the same question. Who declined is asked again only when they do something.
async function newKey(refused, acts) {
  if (prefs.key && prefs.key !== refused) return true;
  if (declined && !acts) return false;
  asking ??= askUser(Boolean(refused)).finally(() => { asking = null; });
  const key = await asking;
  declined = !key;
  if (!key) return false;
  prefs.key = key;
  savePrefs();
  return true;
}

// ---- requests ----

export async function request(path, { method = "GET", body, agent, signal, quiet = false } = {}) {
  for (;;) {
    const key = prefs.key, headers = {};
    if (key) headers.Authorization = "Bearer " + key;
    if (agent) headers["X-Agent"] = agent;
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const reply = await fetch(path, { method, headers, signal, cache: "no-store", body: body === undefined ? undefined : JSON.stringify(body) });
    if (reply.ok) return reply;
    if (reply.status === 401 && !quiet && await newKey(key, method !== "GET")) continue;
    const detail = await reply.json().catch(() => null);
    const message = detail?.error?.message ?? `The server answered with status ${reply.status}.`;
    throw new Refused(reply.status, message, [429, 503].includes(reply.status) ? Number(reply.headers.get("Retry-After")) || 1 : undefined);
  }
}

export const getJson = async (path, options) => (await request(path, options)).json();

// The data of a stream's events.
export async function* events(reply) {
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

// ---- is it there? ----

export const server = { up: null, health: null };
const listeners = [];
export const onServer = (listener) => { listeners.push(listener); };

export async function look() {
  const before = server.up;
  try {
    const reply = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(4000) });
    server.health = await reply.json();
    server.up = reply.ok;
  } catch {
    server.up = false;
  }
  if (server.up !== before) for (const listener of listeners) listener(server.up, before);
  return server.up;
}

// Looks often while the server is away, seldom while it is there, and never while nobody looks at the page.
export async function watch() {
  for (;;) {
    if (!document.hidden || server.up !== true) await look();
    await pause(server.up ? 4000 : 800);
  }
}

export async function untilUp(signal) {
  while (!signal.aborted && !(await look())) await pause(600, signal);
}
