// page.test.mjs: Chromium drives the page: chat, stop, branch, the server going away in the middle, the dashboard.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { after, before, test } from "node:test";
import puppeteer from "puppeteer-core";
import { start } from "./server.mjs";

const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const options = { skip: chromium ? false : "there is no Chromium" };
const problems = [];
let server, browser, page;

before(async () => {
  if (!chromium) return;
  server = await start();
  browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"] });
  page = await browser.newPage();
  page.on("pageerror", (e) => problems.push(e.message));
  page.on("request", (r) => { if (!r.url().startsWith(server.address)) problems.push("asked " + r.url()); });
  await page.goto(server.address + "/");
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

const say = async (text) => {
  await page.type("#input", text);
  await page.keyboard.press("Enter");
};
const idle = () => page.waitForFunction(() => document.getElementById("stop").hidden && !document.querySelector("[aria-busy=true]"), { timeout: 30000 });
const answers = () => page.$$eval("article.assistant .body", (list) => list.map((e) => e.textContent));

test("a chat, and what was remembered", options, async () => {
  await say("Hello! Who are you?");
  await page.waitForSelector("article.assistant");
  await idle();
  assert.ok((await answers())[0].length > 0);
  await say("My name is Ada.");
  await idle();
  const below = await page.$$eval(".below", (list) => list.map((e) => e.textContent));
  assert.match(below.at(-1), /tokens\/s · first token after .* s/);
  assert.ok(Number(/(\d+) of \d+ prompt tokens remembered/.exec(below.at(-1))[1]) > 0);
});

test("text of the model never becomes HTML", options, async () => {
  const html = await page.evaluate(async () => {
    const { markdown } = await import("./markdown.js");
    const box = document.createElement("div");
    box.append(markdown("<img src=x onerror=alert(1)> [x](javascript:alert(1)) **b** `<i>`\n\n```html\n<script>alert(1)</script>\n```\n\n- a\n  - b\n\n| a | b |\n|--|--|\n| <b>1</b> | 2 |"));
    return box.innerHTML;
  });
  assert.ok(!/<img|<script|<i>|<b>|href="javascript/.test(html), html);
  assert.match(html, /<strong>b<\/strong>/);
});

test("stop, retry, branch", options, async () => {
  await page.evaluate(() => { localStorage.setItem("hearth.settings", JSON.stringify({ temperature: "1.5", min_p: "0" })); });
  await page.reload();
  await page.click("#list .name");
  await say("Tell me a very long story about a lamp, a dog and the sea, please.");
  await page.waitForSelector("#stop:not([hidden])");
  await page.keyboard.press("Escape");
  await idle();
  const before = await page.$$eval("#list li", (l) => l.length);
  await page.evaluate(() => [...document.querySelectorAll("article.user button")].find((b) => b.textContent === "Edit").click());
  await page.keyboard.type(" And more!");
  await page.keyboard.press("Enter");
  await idle();
  assert.equal(await page.$$eval("#list li", (l) => l.length), before + 1);
  const first = await page.$eval("article.user .body", (e) => e.textContent);
  assert.equal(first, "Hello! Who are you? And more!");
  await page.evaluate(() => [...document.querySelectorAll("article.assistant button")].find((b) => b.textContent === "Retry").click());
  await idle();
  assert.equal((await answers()).length, 1);
});

test("the server goes away and comes back; the page carries on", options, async () => {
  const port = server.port;
  await server.stop("SIGKILL");
  await say("Are you there?");
  await page.waitForFunction(() => document.body.textContent.includes("The server is away"), { timeout: 20000 });
  server = await start("--port", port);
  await idle();
  assert.ok((await answers()).at(-1).length > 0);
});

test("the dashboard shows numbers", options, async () => {
  await page.click("#open-dashboard");
  await page.waitForSelector(".tile b");
  assert.equal(await page.$$eval(".tile", (l) => l.length), 9);
  await page.keyboard.press("Escape");
  assert.deepEqual(problems.filter((p) => !/Failed to load/.test(p)), []);
});
