// runs.js: answers on their way: asked, streamed, stopped, interrupted, continued.
import { events, pause, Refused, request, server, untilUp } from "./api.js";
import { agents, chain, load, modelOf, saveLocal } from "./book.js";
import { keepFacts, prefs } from "./prefs.js";

export const runs = new Map(); // branch id -> {branch, message, abort, began, first}
let changed = () => {};        // set by the page: a message looks different now
export const onRun = (listener) => { changed = listener; };
export const stop = (branch) => runs.get(branch?.id)?.abort.abort();

// ---- what is asked ----

const numbers = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];

function sampling(branch) {
  const body = {}, model = modelOf(branch), o = prefs.options;
  for (const key of numbers) if (o[key] !== undefined && o[key] !== "") body[key] = Number(o[key]);
  if (model) body.model = model;
  return body;
}

function shape() {
  const { shape: kind, rules = "" } = prefs.options;
  if (kind === "json") return { response_format: { type: "json_object" } };
  if (kind === "grammar" || kind === "regex") return { [kind]: rules };
  if (kind !== "schema") return {};
  try {
    return { json_schema: JSON.parse(rules) };
  } catch {
    throw new Refused(400, "The JSON schema in the options is no valid JSON.");
  }
}

// As the API takes them: what this page notes beside a message stays here.
const bare = (messages) => messages.map(({ note, ...message }) => message);

// An answer that has begun is gone on with.
async function askChat(run, upTo) {
  const rest = run.message.content ? { continue_final_message: true } : shape();
  const messages = bare(run.branch.messages.slice(0, upTo));
  if (run.message.content) messages.push({ role: "assistant", content: run.message.content });
  const body = { ...sampling(run.branch), ...rest, messages, stream: true, stream_options: { include_usage: true } };
  return request("v1/chat/completions", { method: "POST", body, agent: run.branch.id, signal: run.abort.signal });
}

// ---- what comes ----

function note(run, usage, timings) {
  const now = performance.now(), first = run.first || now, seconds = (now - first) / 1000;
  const made = usage.completion_tokens;
  run.message.note.facts = {
    first: timings?.first_token_ms !== undefined ? timings.first_token_ms / 1000 : (first - run.began) / 1000,
    rate: timings?.tokens_per_second ?? (made > 1 && seconds > 0 ? (made - 1) / seconds : 0),
    tokens: made,
    prompt: usage.prompt_tokens,
    cached: usage.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

// Follows one stream; true when it came to its end.
async function follow(run, reply) {
  const { message } = run;
  let usage = null, timings = null;
  for await (const data of events(reply)) {
    if (data === "[DONE]") {
      if (usage) note(run, usage, timings);
      return true;
    }
    const event = JSON.parse(data);
    if (event.error) throw new Refused(event.error.code === "timeout" ? 504 : 500, event.error.message);
    usage = event.usage ?? usage;
    timings = event.timings ?? timings;
    const choice = event.choices?.[0], text = choice?.delta?.content ?? choice?.text;
    if (choice?.delta?.reasoning_content) message.note.thought = (message.note.thought ?? "") + choice.delta.reasoning_content;
    if (text) {
      run.first ||= performance.now();
      message.content += text;
    }
    if (choice?.finish_reason) message.note.finish = choice.finish_reason;
    changed(run.branch, message);
  }
  return false;
}

const broken = (problem) => problem instanceof TypeError; // the connection, not an answer of the server

async function once(run, upTo) {
  const { message } = run;
  run.began = performance.now();
  run.first = 0;
  try {
    return await follow(run, await askChat(run, upTo)) ? "done" : "broken";
  } catch (problem) {
    if (run.abort.signal.aborted) return "stopped";
    if (broken(problem)) return "broken";
    if (!problem.retry) throw problem;
    message.note.state = "busy";
    changed(run.branch, message);
    await pause(1000 * problem.retry, run.abort.signal);
    return "again";
  }
}

// Asks until the answer is there. When the server goes away, waits for it; then an answer that had begun goes on where it broke off.
async function insist(run, upTo) {
  const { message, abort } = run;
  let breaks = 0;
  for (;;) {
    const how = await once(run, upTo);
    if (abort.signal.aborted) return "stopped";
    if (how === "done") return null;
    if (how === "broken") {
      // Twice broken in the middle: perhaps this very request breaks the server.
      if (message.content && (++breaks > 1 || message.note.shaped)) return "interrupted";
      message.note.state = "away";
      message.note.finish = undefined;
      changed(run.branch, message);
      await untilUp(abort.signal);
      if (abort.signal.aborted) return "stopped";
      if (message.content) message.note.continued = true;
    }
    message.note.state = "waiting";
    changed(run.branch, message);
  }
}

// Answers the branch as it stands. A last message of the assistant is gone on with.
export async function answer(branch) {
  let message = branch.messages.at(-1);
  if (message?.role !== "assistant") branch.messages.push(message = { role: "assistant", content: "" });
  // An answer of a given form cannot go on in the middle: the form would begin anew.
  message.note = { state: "waiting", continued: Boolean(message.content), shaped: Boolean(prefs.options.shape) };
  const run = { branch, message, abort: new AbortController() }, upTo = branch.messages.length - 1;
  runs.set(branch.id, run);
  branch.local = true;
  branch.changed = Date.now();
  saveLocal();
  changed(branch, message, true);
  try {
    const finish = await insist(run, upTo);
    if (finish) message.note.finish = finish;
  } catch (problem) {
    message.note.problem = problem.message;
    message.note.status = problem.status;
  }
  message.note.state = undefined;
  branch.changed = Date.now();
  runs.delete(branch.id);
  if (message.note.facts) keepFacts(chain(branch.messages).at(-1), { ...message.note.facts, finish: message.note.finish });
  saveLocal();
  changed(branch, message, true);
  if (agents.known && server.up) {
    await load(branch, true);
    changed(branch, null, true);
  }
}
