// clients.test.mjs: the clients that people use, against the default model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { embedMany, generateText, jsonSchema, Output, streamText, tool } from "ai";
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
  assert.equal(counted.input_tokens, final.usage.input_tokens + final.usage.cache_read_input_tokens + final.usage.cache_creation_input_tokens);
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

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const texts = ["The cat sat on the mat.", "A cat sat on a mat.", "Stock prices fell sharply."];

test("openai: embeddings, as base64 by default and as numbers", async () => {
  const coded = await openai.embeddings.create({ model, input: texts });
  const plain = await openai.embeddings.create({ model, input: texts, encoding_format: "float" });
  const few = await openai.embeddings.create({ model, input: texts[0], dimensions: 32 });
  for (const i of [0, 1, 2]) for (const k of [0, 7]) assert.ok(Math.abs(coded.data[i].embedding[k] - plain.data[i].embedding[k]) < 1e-6);
  const [a, b, c] = coded.data.map((d) => d.embedding);
  assert.ok(Math.abs(dot(a, a) - 1) < 1e-4);
  assert.ok(dot(a, b) > dot(a, c));
  assert.equal(few.data[0].embedding.length, 32);
  assert.ok(coded.usage.prompt_tokens > 0);
});

test("ai and langchain: embeddings", async () => {
  const provider = createOpenAICompatible({ name: "hearth", baseURL: server.address + "/v1", apiKey: key });
  const { embeddings, usage } = await embedMany({ model: provider.embeddingModel(model), values: texts });
  assert.equal(embeddings.length, 3);
  assert.ok(usage.tokens > 0);
  const chain = new OpenAIEmbeddings({ model, apiKey: key, configuration: { baseURL: server.address + "/v1" } });
  const vectors = await chain.embedDocuments(texts);
  assert.ok(dot(vectors[0], vectors[1]) > dot(vectors[0], vectors[2]));
  assert.ok(dot(await chain.embedQuery(texts[0]), embeddings[0]) > 0.999);
});

test("openai: responses, whole, streamed, gone on from, shown and deleted", async () => {
  const first = await openai.responses.create({ model, instructions: "You are kind.", input: hello, temperature: 0, max_output_tokens: 60, metadata: { a: "b" } });
  assert.equal(first.status, "completed");
  assert.match(first.output_text, /Ember/);
  assert.equal(first.usage.total_tokens, first.usage.input_tokens + first.usage.output_tokens);
  const stream = openai.responses.stream({ model, instructions: "You are kind.", input: [{ role: "user", content: hello }], temperature: 0, max_output_tokens: 60 });
  let text = "";
  const kinds = new Set();
  for await (const event of stream) {
    kinds.add(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  assert.equal(text, first.output_text);
  const final = await stream.finalResponse();
  assert.equal(final.output_text, text);
  assert.ok(final.usage.input_tokens_details.cached_tokens > 0);
  for (const kind of ["created", "in_progress", "output_item.added", "content_part.added", "output_text.done", "content_part.done", "output_item.done", "completed"]) assert.ok(kinds.has("response." + kind), kind);
  const next = await openai.responses.create({ model, previous_response_id: final.id, input: "Tell me a story.", temperature: 0, max_output_tokens: 10 });
  const same = await openai.responses.create({
    model, store: false, temperature: 0, max_output_tokens: 10,
    input: [{ role: "user", content: hello }, ...final.output, { role: "user", content: "Tell me a story." }],
  });
  assert.equal(next.output_text, same.output_text);
  assert.equal(next.usage.input_tokens, same.usage.input_tokens);
  assert.equal(next.status, "incomplete");
  assert.equal(next.incomplete_details.reason, "max_output_tokens");
  assert.equal((await openai.responses.retrieve(first.id)).output_text, first.output_text);
  assert.equal((await openai.responses.inputItems.list(next.id)).data[0].content, "Tell me a story.");
  await openai.responses.delete(first.id);
  await assert.rejects(openai.responses.retrieve(first.id), OpenAI.NotFoundError);
  await assert.rejects(openai.responses.retrieve(same.id), OpenAI.NotFoundError);
  await assert.rejects(openai.responses.create({ model, previous_response_id: first.id, input: "x" }), OpenAI.BadRequestError);
  assert.equal((await openai.responses.inputTokens.count({ model, input: hello })).input_tokens, (await openai.responses.create({ model, input: hello, max_output_tokens: 1 })).usage.input_tokens);
});

test("openai: responses with calls and JSON by schema", async () => {
  const tools = [{ type: "function", name: weather.name, description: weather.description, parameters: weather.schema, strict: true }];
  const input = "What is the weather in Rome?";
  const called = await openai.responses.create({ model, input, tools, tool_choice: "required" });
  const call = called.output.find((item) => item.type === "function_call");
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.arguments).city));
  const after = await openai.responses.create({
    model, previous_response_id: called.id, tools, tool_choice: "none", max_output_tokens: 10,
    input: [{ type: "function_call_output", call_id: call.call_id, output: "sunny" }],
  });
  assert.equal(after.output[0].type, "message");
  const stream = openai.responses.stream({ model, input, tools, tool_choice: { type: "function", name: "weather" } });
  let pieces = 0;
  for await (const event of stream) pieces += event.type === "response.function_call_arguments.delta";
  assert.ok(pieces > 1);
  assert.equal((await stream.finalResponse()).output[0].name, "weather");
  const shaped = await openai.responses.create({ model, input, text: { format: { type: "json_schema", name: "w", strict: true, schema: weather.schema } } });
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(shaped.output_text).city));
});

test("langchain: the responses API", async () => {
  const chat = new ChatOpenAI({ model, temperature: 0, apiKey: key, maxRetries: 0, useResponsesApi: true, configuration: { baseURL: server.address + "/v1" } });
  assert.match((await chat.invoke(hello)).text, /Ember/);
  let text = "";
  for await (const part of await chat.stream(hello)) text += part.text;
  assert.match(text, /Ember/);
});

test("openai: arguments of calls are streamed in pieces", async () => {
  const tools = [{ type: "function", function: { name: weather.name, parameters: weather.schema } }];
  let pieces = 0, text = "";
  for await (const chunk of await openai.chat.completions.create({ model, messages: [{ role: "user", content: "Weather?" }], tools, tool_choice: "required", stream: true })) {
    const call = chunk.choices[0]?.delta?.tool_calls?.[0];
    if (call?.function?.arguments) pieces++, (text += call.function.arguments);
  }
  assert.ok(pieces > 1);
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(text).city));
});

test("ai: a tool that is run, and the turn after it", async () => {
  const provider = createOpenAICompatible({ name: "hearth", baseURL: server.address + "/v1", apiKey: key });
  const { toolCalls, toolResults } = await generateText({
    model: provider(model), prompt: "Weather?", toolChoice: "required",
    tools: { weather: tool({ description: weather.description, inputSchema: jsonSchema(weather.schema), execute: async ({ city }) => city + " is sunny" }) },
  });
  assert.equal(toolCalls[0].toolName, "weather");
  assert.match(toolResults[0].output, /is sunny/);
});
