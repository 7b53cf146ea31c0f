// clients.test.mjs: the clients that people use, against the default model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, jsonSchema, Output, streamText } from "ai";
import OpenAI from "openai";
import { start } from "./server.mjs";

const key = "a-key-for-tests", hello = "Hello! Who are you?";
let server, openai, anthropic, model;

before(async () => {
  server = await start("--api-key", key, "--queue", "2", "--parallel", "4");
  openai = new OpenAI({ baseURL: server.address + "/v1", apiKey: key, maxRetries: 0 });
  anthropic = new Anthropic({ baseURL: server.address, apiKey: key, maxRetries: 0 });
  model = (await openai.models.list()).data[0].id;
});
after(async () => { assert.equal(await server.stop(), 0); });

test("openai: chat, whole and streamed, is the same text", async () => {
  const request = { model, messages: [{ role: "user", content: hello }], temperature: 0, max_completion_tokens: 40 };
  const whole = await openai.chat.completions.create(request);
  assert.match(whole.choices[0].message.content, /Ember/);
  assert.equal(whole.choices[0].finish_reason, "stop");
  let text = "", usage = null;
  for await (const chunk of await openai.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens - 1);
});

test("openai: the helper that follows a stream", async () => {
  const stream = openai.chat.completions.stream({ model, messages: [{ role: "user", content: hello }], temperature: 0 });
  const final = await stream.finalChatCompletion();
  assert.match(final.choices[0].message.content, /Ember/);
});

test("openai: logprobs, n, seed, stop, completions", async () => {
  const ask = () => openai.chat.completions.create({ model, messages: [{ role: "user", content: "Tell me a story." }], n: 2, seed: 7, temperature: 1, max_tokens: 12, logprobs: true, top_logprobs: 2 });
  const [a, b] = [await ask(), await ask()];
  assert.equal(a.choices.length, 2);
  assert.equal(a.choices[1].logprobs.content[0].top_logprobs.length, 2);
  for (const i of [0, 1]) assert.equal(a.choices[i].message.content, b.choices[i].message.content);
  const stopped = await openai.chat.completions.create({ model, messages: [{ role: "user", content: hello }], temperature: 0, stop: ["little"] });
  assert.ok(!stopped.choices[0].message.content.includes("little"));
  const more = await openai.completions.create({ model, prompt: "Once upon a", max_tokens: 3, temperature: 0 });
  assert.equal(more.usage.completion_tokens, 3);
});

test("openai: errors have the classes that clients look for", async () => {
  const messages = [{ role: "user", content: hello }];
  await assert.rejects(new OpenAI({ baseURL: server.address + "/v1", apiKey: "wrong", maxRetries: 0 }).models.list(), OpenAI.AuthenticationError);
  await assert.rejects(openai.chat.completions.create({ model: "gpt-9", messages }), OpenAI.NotFoundError);
  await assert.rejects(openai.chat.completions.create({ model, messages, top_p: 3 }), (e) => e instanceof OpenAI.BadRequestError && e.param === "top_p");
});

test("openai: a client that leaves frees its place; too many are told to wait, and retries get through", async () => {
  const endless = { model, messages: [{ role: "user", content: "Tell me a long story." }], ignore_eos: true, stream: true };
  const streams = await Promise.all(Array.from({ length: 6 }, () => openai.chat.completions.create(endless)));
  await assert.rejects(openai.chat.completions.create({ model, messages: [{ role: "user", content: hello }] }), OpenAI.RateLimitError);
  for (const s of streams) s.controller.abort();
  const patient = new OpenAI({ baseURL: server.address + "/v1", apiKey: key, maxRetries: 5 });
  assert.ok((await patient.chat.completions.create({ model, messages: [{ role: "user", content: hello }], max_tokens: 3 })).choices.length);
});

test("anthropic: messages, whole and streamed, and counted", async () => {
  const request = { model, max_tokens: 60, system: "You are kind.", messages: [{ role: "user", content: [{ type: "text", text: hello, cache_control: { type: "ephemeral" } }] }], temperature: 0 };
  const whole = await anthropic.messages.create(request);
  assert.equal(whole.stop_reason, "end_turn");
  const stream = anthropic.messages.stream(request);
  let text = "";
  stream.on("text", (t) => { text += t; });
  const final = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(final.content.map(({ type, text: t }) => [type, t]), [["text", text]]);
  assert.ok(final.usage.cache_read_input_tokens > 0);
  const { model: m, system, messages } = request;
  const counted = await anthropic.messages.countTokens({ model: m, system, messages });
  assert.equal(counted.input_tokens, final.usage.input_tokens + final.usage.cache_read_input_tokens);
  await assert.rejects(anthropic.messages.create({ ...request, model: "claude" }), Anthropic.NotFoundError);
});

test("ai: generateText and streamText", async () => {
  const provider = createOpenAICompatible({ name: "hearth", baseURL: server.address + "/v1", apiKey: key, includeUsage: true });
  const { text, usage } = await generateText({ model: provider(model), prompt: hello, temperature: 0 });
  assert.match(text, /Ember/);
  assert.ok(usage.outputTokens > 0);
  const result = streamText({ model: provider(model), prompt: hello, temperature: 0 });
  let streamed = "";
  for await (const part of result.textStream) streamed += part;
  assert.equal(streamed, text);
});

test("langchain: invoke and stream", async () => {
  const chat = new ChatOpenAI({ model, temperature: 0, apiKey: key, maxRetries: 0, configuration: { baseURL: server.address + "/v1" } });
  const answer = await chat.invoke(hello);
  assert.match(answer.content, /Ember/);
  let text = "";
  for await (const part of await chat.stream(hello)) text += part.content;
  assert.equal(text, answer.content);
});

const weather = {
  name: "weather",
  description: "Tells the weather.",
  schema: { type: "object", properties: { city: { enum: ["Rome", "Oslo"] } }, required: ["city"], additionalProperties: false },
};

test("openai: forced tool calls and JSON by schema", async () => {
  const messages = [{ role: "user", content: "What is the weather in Rome?" }];
  const tools = [{ type: "function", function: { name: weather.name, description: weather.description, parameters: weather.schema } }];
  const called = await openai.chat.completions.create({ model, messages, tools, tool_choice: "required" });
  const call = called.choices[0].message.tool_calls[0];
  assert.equal(call.function.name, "weather");
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.function.arguments).city));
  const next = [...messages, called.choices[0].message, { role: "tool", tool_call_id: call.id, content: "sunny" }];
  assert.ok((await openai.chat.completions.create({ model, messages: next, tools, tool_choice: "none", max_tokens: 10 })).choices[0].message);
  const stream = openai.chat.completions.stream({ model, messages, tools, tool_choice: { type: "function", function: { name: "weather" } } });
  assert.equal((await stream.finalChatCompletion()).choices[0].message.tool_calls[0].function.name, "weather");
  const shaped = await openai.chat.completions.create({ model, messages, response_format: { type: "json_schema", json_schema: { name: "w", strict: true, schema: weather.schema } } });
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(shaped.choices[0].message.content).city));
});

test("anthropic: forced tool calls, whole and streamed", async () => {
  const request = {
    model, max_tokens: 100, messages: [{ role: "user", content: "What is the weather in Rome?" }],
    tools: [{ name: weather.name, description: weather.description, input_schema: weather.schema }], tool_choice: { type: "tool", name: "weather" },
  };
  const whole = await anthropic.messages.create(request);
  assert.equal(whole.stop_reason, "tool_use");
  assert.ok(["Rome", "Oslo"].includes(whole.content.at(-1).input.city));
  const final = await anthropic.messages.stream(request).finalMessage();
  assert.ok(["Rome", "Oslo"].includes(final.content.at(-1).input.city));
});

test("ai and langchain: objects and tool calls", async () => {
  const provider = createOpenAICompatible({ name: "hearth", baseURL: server.address + "/v1", apiKey: key, supportsStructuredOutputs: true });
  const { output } = await generateText({ model: provider(model), prompt: "Weather?", output: Output.object({ schema: jsonSchema(weather.schema) }) });
  assert.ok(["Rome", "Oslo"].includes(output.city));
  const chat = new ChatOpenAI({ model, apiKey: key, maxRetries: 0, configuration: { baseURL: server.address + "/v1" } });
  const bound = chat.bindTools([{ type: "function", function: { name: "weather", parameters: weather.schema } }], { tool_choice: "weather" });
  assert.equal((await bound.invoke("Weather?")).tool_calls[0].name, "weather");
});
