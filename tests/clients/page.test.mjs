// page.test.mjs: Chromium drives the page: chat, stop, retry, branches, the server going away in the middle, the dashboard, dark, keyboard, narrow.
import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import puppeteer from "puppeteer-core";
import { start } from "./server.mjs";

const chromium = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"].find(existsSync);
const options = { skip: chromium ? false : "there is no Chromium" };
const problems = [];
let server, browser, page;

async function newPage(address, context = browser) {
  const p = await context.newPage();
  await p.setViewport({ width: 1200, height: 800 });
  p.on("pageerror", (e) => problems.push(e.message));
  // The browser itself notes refused and failed requests; the page is to show those, and here they are wanted.
  p.on("console", (m) => { if (m.type() === "error" && !/Failed to load resource/.test(m.text())) problems.push(m.text()); });
  p.on("request", (r) => { if (!r.url().startsWith(address)) problems.push("asked " + r.url()); });
  await p.goto(address + "/");
  return p;
}

before(async () => {
  if (!chromium) return;
  server = await start();
  browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"] });
  page = await newPage(server.address);
});
after(async () => {
  await browser?.close();
  await server?.stop();
});

// Pictures for people to look at, light and dark, wide and narrow: build/pictures.
const pictures = fileURLToPath(new URL("../../build/pictures/", import.meta.url));
mkdirSync(pictures, { recursive: true });
async function picture(name, { on = page, widths = [1200, 375], prepare = () => {} } = {}) {
  const had = on.viewport(), theme = await on.evaluate(() => document.documentElement.dataset.theme);
  const dress = (scheme) => on.evaluate((s) => { if (s) document.documentElement.dataset.theme = s; else delete document.documentElement.dataset.theme; }, scheme);
  for (const width of widths) {
    if (width !== had.width) await on.setViewport({ width, height: width > 600 ? 800 : 720 });
    for (const scheme of ["light", "dark"]) {
      await dress(scheme);
      await prepare();
      // What moves comes to rest, but for what never does.
      await on.evaluate(() => Promise.allSettled(document.getAnimations().filter((a) => a.effect.getTiming().iterations !== Infinity).map((a) => a.finished)));
      await on.screenshot({ path: `${pictures}${name}-${width}-${scheme}.png` });
    }
  }
  await dress(theme);
  if (widths.some((width) => width !== had.width)) await on.setViewport(had);
}

const say = async (text) => {
  await page.waitForFunction(() => document.getElementById("stop").hidden);
  await page.focus("#input");
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
};
const idle = () => page.waitForFunction(() => document.getElementById("stop").hidden && document.querySelector("article") && !document.querySelector("[aria-busy=true]"), { timeout: 30000 });
const exchange = async (text) => {
  const had = await page.$$eval("article.user", (l) => l.length);
  await say(text);
  await page.waitForFunction((n) => document.querySelectorAll("article.user").length > n, {}, had);
  await idle();
};
const texts = (selector) => page.$$eval(selector, (list) => list.map((e) => e.textContent));
const answers = () => texts("article.assistant > .body");
const asked = () => texts("article.user > .body");
const press = async (selector, text) => {
  const found = await page.evaluateHandle((s, t) => [...document.querySelectorAll(s)].findLast((b) => b.textContent.trim() === t || b.getAttribute("aria-label") === t), selector, text);
  assert.ok(found.asElement(), `there is no ${text} at ${selector}`);
  await found.asElement().evaluate((b) => b.click());
};
const alt = async (key) => {
  await page.keyboard.down("Alt");
  await page.keyboard.press(key);
  await page.keyboard.up("Alt");
};
const set = (values) => page.evaluate((v) => {
  const form = document.getElementById("options-form");
  for (const [name, value] of Object.entries(v)) form.elements[name].value = value;
  form.dispatchEvent(new Event("input", { bubbles: true }));
}, values);
// Does this and waits for the answer that it brings.
const answered = async (work) => {
  await page.$$eval("article.assistant", (l) => l.forEach((e) => { e.dataset.old = e.textContent; }));
  await work();
  await page.waitForFunction(() => [...document.querySelectorAll("article.assistant[aria-busy=false]")].some((e) => e.dataset.old !== e.textContent && e.querySelector(".fact")), { timeout: 30000 });
  await idle();
};
// A model of this size ends its answers soon; these go on until something stops them.
const endless = (on) => page.evaluate((is) => {
  window.realFetch ??= window.fetch;
  window.fetch = is ? (path, o) => window.realFetch(path, o?.body && /completions/.test(path) ? { ...o, body: JSON.stringify({ ...JSON.parse(o.body), ignore_eos: true }) } : o) : window.realFetch;
}, on);

test("a chat, and what was remembered", options, async () => {
  await picture("welcome");
  await set({ temperature: "0" });
  await exchange("Hello! Who are you?");
  assert.match((await answers())[0], /Ember/);
  await exchange("My name is Ada.");
  const below = (await texts("article.assistant .below")).at(-1);
  assert.match(below, /tokens\/s.*first after .*s.*% remembered/);
  assert.ok(Number(/(\d+) % remembered/.exec(below)[1]) > 0, below);
  assert.match(await page.$eval("#announce", (e) => e.textContent), /^Answer: /);
  assert.equal(await page.$eval("#log", (e) => e.getAttribute("aria-live")), null);
});

test("text of the model never becomes HTML", options, async () => {
  const html = await page.evaluate(async () => {
    const { showMarkdown } = await import("./markdown.js");
    const box = document.createElement("div");
    showMarkdown(box, "<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![p](https://example.org/p.png) **b** `<i>`\n\n```html\n<script>alert(1)</script>\n```\n\n" +
      "1. a\n   - b\n\n   c\n2. d\n\n| a | b |\n|--|--:|\n| <b>1</b> | 2 |\n\n> q\n\n- [x] done\nhttps://example.org/a_b_c and snake_case_word");
    return box.innerHTML;
  });
  assert.ok(!/<img|<script|<i>|<b>|href="javascript/.test(html), html);
  assert.match(html, /<strong>b<\/strong>.*<ol><li>a<ul><li>b<\/li><\/ul>.*<li>d<\/li><\/ol>.*<td class="right">2<\/td>.*<blockquote><p>q<\/p><\/blockquote>.*type="checkbox"/s);
  assert.match(html, /href="https:\/\/example.org\/a_b_c".*snake_case_word/);
  const fill = () => page.evaluate(async () => {
    const { showMarkdown } = await import("./markdown.js");
    const body = document.querySelector("article.assistant > .body");
    showMarkdown(body, "# A heading\n\nSome *words* and `code`, [a link](https://example.org/).\n\n```c\nint main(void) {\n    return 0; /* a line that is much longer than a narrow screen is wide, so that it must scroll and not stick out */\n}\n```\n\n" +
      "1. first\n   - inner\n2. second\n\n| name | number | a wide column of words |\n|--|--:|--|\n| one | 1 | text that goes on and on |\n\n> quoted\n\n- [x] done\n\n" + "averylongword".repeat(20));
  });
  await picture("markdown", { prepare: fill });
  await page.reload();
  await page.waitForSelector("article.assistant");
});

test("a growing text keeps the nodes that did not change; odd texts are quick", options, async () => {
  const same = await page.evaluate(async () => {
    const { showMarkdown } = await import("./markdown.js");
    const box = document.createElement("div");
    showMarkdown(box, "one\n\n```c\nint x;\n```\n\ntw");
    const [first, code] = box.children;
    showMarkdown(box, "one\n\n```c\nint x;\n```\n\ntwo **three**");
    for (const odd of ["*".repeat(20000), "[".repeat(20000), "`a".repeat(9000), "|-".repeat(9000) + "\n" + "|-".repeat(9000), "> ".repeat(5000), "- ".repeat(5000), "# " + " ".repeat(50000) + "x", "_a".repeat(9000)])
      showMarkdown(document.createElement("div"), odd);
    return box.children[0] === first && box.children[1] === code && box.children[2].textContent === "two three";
  });
  assert.ok(same);
});

test("stop, then continue; retry in a branch; both stay", options, async () => {
  await endless(true);
  await say("Tell me a very long story.");
  await page.waitForFunction(() => (document.querySelector("article.live > .body")?.textContent.length ?? 0) > 20);
  await page.keyboard.press("Escape");
  await idle();
  assert.match((await texts(".below")).at(-1), /Stopped/);
  await picture("stopped");
  await set({ max_tokens: "12" });
  const part = (await answers()).at(-1);
  await answered(() => press("article.assistant .tools button", "Continue"));
  const whole = (await answers()).at(-1);
  assert.ok(whole.startsWith(part.trimEnd()) && whole.length > part.length, whole);
  await endless(false);
  await set({ max_tokens: "", temperature: "1.5" });
  const rows = await page.$$eval("#list li", (l) => l.length);
  await answered(() => press("article.assistant .tools button", "Retry: answer again in a branch"));
  assert.match((await texts("article.assistant .pager")).at(-1), /2 \/ 2/);
  assert.equal(await page.$$eval("#list li", (l) => l.length), rows);
  await press(".pager button", "Previous version of this answer");
  await page.waitForFunction((t) => [...document.querySelectorAll("article.assistant > .body")].at(-1).textContent === t, {}, whole);
});

test("edit a message: a branch; the other stays reachable, also after a reload", options, async () => {
  await set({ temperature: "0" });
  const before = await asked();
  await page.evaluate(() => document.querySelector("article.user .tools button").click());
  await page.keyboard.type(" And more!");
  await picture("edit");
  await answered(() => page.keyboard.press("Enter"));
  assert.deepEqual(await asked(), ["Hello! Who are you? And more!"]);
  assert.match((await texts("article.user .pager"))[0], /2 \/ 2/);
  await page.reload();
  await page.waitForSelector("article.user .pager");
  await picture("branches");
  assert.deepEqual(await asked(), ["Hello! Who are you? And more!"]);
  await press("article.user .pager button", "Previous version of this message");
  await page.waitForFunction((n) => document.querySelectorAll("article.user").length === n, {}, before.length);
  assert.deepEqual(await asked(), before);
});

test("the server goes away in the middle of an answer and comes back; the page carries on", options, async () => {
  const { port, store } = server;
  await set({ temperature: "1", max_tokens: "1500" });
  await endless(true);
  await say("Count for me.");
  await page.waitForFunction(() => (document.querySelector("article.live > .body")?.textContent.length ?? 0) > 40);
  await server.stop("SIGKILL");
  const part = (await answers()).at(-1);
  await page.waitForFunction(() => /The server is away/.test(document.getElementById("notice").textContent));
  await set({ max_tokens: "10" });
  server = await start("--port", port, "--store-dir", store);
  await idle();
  const whole = (await answers()).at(-1);
  assert.ok(whole.length > part.length && whole.startsWith(part.slice(0, 30)), whole);
  assert.match((await texts(".below")).at(-1), /Continued|Cut off/);
  await page.waitForFunction(() => document.getElementById("notice").hidden || /back/.test(document.getElementById("notice").textContent));
  await page.reload();
  await page.waitForSelector("article.user");
});

test("a message to a server that is away is sent when it is back; the page opens without it", options, async () => {
  const { port, store } = server;
  await set({ max_tokens: "", temperature: "0" });
  await page.evaluate(() => navigator.serviceWorker.ready.then(() => {}));
  await server.stop("SIGKILL");
  await page.reload();
  await page.waitForFunction(() => /The server is away/.test(document.getElementById("notice").textContent));
  await alt("KeyN");
  await say("Are you there?");
  await page.waitForFunction(() => /goes on when it is back/.test(document.querySelector(".wait")?.textContent ?? ""));
  await picture("away");
  server = await start("--port", port, "--store-dir", store);
  await idle();
  assert.ok((await answers()).at(-1).length > 0);
});

test("conversations are the server's: another browser sees them, their branches and where they are kept", options, async (t) => {
  const own = await browser.createBrowserContext(), first = page;
  try {
    page = await newPage(server.address, own);
    await page.waitForSelector("#list li .tier:not(.none)");
    await page.evaluate(() => [...document.querySelectorAll("#list .entry")].find((e) => /branches/.test(e.textContent)).click());
    await page.waitForSelector(".pager");
    assert.ok((await asked())[0].startsWith("Hello! Who are you?"));
    await exchange("Do you remember me?");
    assert.ok(Number(/(\d+) % remembered/.exec((await texts("article.assistant .below")).at(-1))[1]) > 30);
    await page.waitForFunction(() => document.querySelector("#list li.open .tier").classList.contains("hot"));
    assert.deepEqual(await page.evaluate(() => Object.keys(JSON.parse(localStorage.getItem("hearth.branches") ?? "{}"))), []);
    const address = await page.evaluate(() => location.hash);
    // The browser from before follows, without a reload.
    await first.bringToFront();
    await first.evaluate((a) => { location.hash = a; }, address);
    await first.waitForFunction(() => [...document.querySelectorAll("article.user > .body")].at(-1)?.textContent === "Do you remember me?", { timeout: 15000 });
  } finally {
    page = first;
    await own.close();
  }
});

test("an agent is pinned, moved to disk, and deleted from its menu", options, async (t) => {
  const choose = async (what) => {
    await page.focus("#list li.open .more");
    await page.keyboard.press("Enter");
    await page.waitForSelector(".menu:popover-open");
    await press(".menu button", what);
  };
  const agents = async () => (await (await fetch(server.address + "/v1/agents")).json()).data;
  const rows = await page.$$eval("#list li", (l) => l.length), had = (await agents()).length;
  await page.focus("#list li.open .more");
  await page.keyboard.press("Enter");
  await page.waitForSelector(".menu:popover-open");
  await picture("menu", { widths: [1200] });
  await page.keyboard.press("Escape");
  await choose("Move to disk");
  await page.waitForSelector("#list li.open .tier.warm");
  await exchange("Are you still there?");
  await page.waitForSelector("#list li.open .tier.hot");
  await choose("Pin");
  await page.waitForFunction(() => document.querySelector("#list h2").textContent === "Pinned");
  assert.ok((await agents()).some((a) => a.pinned));
  await choose("Delete");
  await page.waitForSelector("#confirm[open]");
  await picture("confirm");
  await press("#confirm button", "Delete");
  await page.waitForFunction((n) => document.querySelectorAll("#list li").length === n, {}, rows - 1);
  assert.equal(await page.evaluate(() => location.hash), "#/");
  for (let i = 0; (await agents()).length >= had && i < 100; i++) await new Promise((done) => setTimeout(done, 50));
  assert.ok((await agents()).length < had);
  await page.evaluate(() => document.querySelector("#list .entry").click());
  await page.waitForSelector("article.assistant");
});

test("a refused request is told in words, and can be retried", options, async () => {
  await set({ shape: "grammar", rules: "root ::= (" });
  await say("Hello!");
  await page.waitForSelector("article [role=alert]");
  assert.match((await texts("article [role=alert]")).at(-1), /refused this request/);
  await picture("refused");
  await set({ shape: "json", rules: "" });
  await press("article.assistant .tools button", "Retry: answer again in a branch");
  await page.waitForFunction(() => !document.querySelector("article [role=alert]"));
  await idle();
  JSON.parse((await answers()).at(-1));
  await set({ shape: "" });
});

test("the dashboard shows numbers and charts", options, async () => {
  await alt("KeyD");
  await page.waitForSelector("#headlines .figure");
  await page.waitForFunction(() => document.querySelectorAll("#charts path.line").length >= 4, { timeout: 15000 });
  assert.ok(await page.$$eval(".figure b", (l) => l.length) >= 4);
  const told = await page.$$eval("#charts svg", (l) => l.map((e) => e.getAttribute("aria-label")));
  assert.match(told[0], /^Generated: .* tokens\/s; at most/);
  assert.ok(await page.$$eval("[role=meter]", (l) => l.length) >= 4);
  await picture("dashboard");
  await page.evaluate(() => document.querySelector(".sheet")?.lastElementChild.scrollIntoView());
  await picture("dashboard-end");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#chat:not([hidden])");
});

test("light and dark: text stands out from what is behind it", options, async () => {
  const contrast = () => page.evaluate(() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const light = (colour) => {
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const of = (front, back) => (Math.max(light(front), light(back)) + 0.05) / (Math.min(light(front), light(back)) + 0.05);
    const style = (selector) => getComputedStyle(document.querySelector(selector));
    const back = style("body").backgroundColor;
    return { scheme: light(back) > 0.5 ? "light" : "dark", ratios: [of(style("body").color, back), of(style("article .below").color, back), of(style("#list .detail").color, style("#side").backgroundColor)] };
  });
  for (const scheme of ["light", "dark"]) {
    await page.evaluate((s) => {
      while (document.documentElement.dataset.theme !== s) document.getElementById("theme").click();
    }, scheme);
    const seen = await contrast();
    assert.equal(seen.scheme, scheme);
    assert.ok(seen.ratios.every((r) => r >= 4.5), `${scheme}: ${seen.ratios}`);
  }
  await page.reload();
  await page.waitForSelector("article");
  assert.equal((await contrast()).scheme, "dark");
});

test("by keyboard alone", options, async () => {
  await page.keyboard.down("Control");
  await page.keyboard.press("KeyK");
  await page.keyboard.up("Control");
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.className);
  assert.equal(await focused(), "find");
  await page.keyboard.type("are you there");
  await page.waitForFunction(() => document.querySelectorAll("#list li").length === 1);
  await page.keyboard.press("Enter");
  assert.equal(await focused(), "entry");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => document.activeElement.id === "input");
  assert.equal((await asked())[0], "Are you there?");
  await page.keyboard.press("ArrowUp");
  assert.equal(await page.evaluate(() => document.activeElement.getAttribute("aria-label")), "Edit the message");
  await page.keyboard.press("Escape");
  await alt("KeyO");
  assert.equal(await page.$eval("#options", (e) => e.hidden), false);
  await picture("options");
  await page.keyboard.press("Escape");
  assert.equal(await page.$eval("#options", (e) => e.hidden), true);
  assert.equal(await focused(), "open-options");
  // Everything that can be clicked has a name, and everything is reached by Tab.
  const nameless = await page.evaluate(() => [...document.querySelectorAll("button, input, select, textarea, a")]
    .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.closest("[hidden]"))).map((e) => e.outerHTML));
  assert.deepEqual(nameless, []);
  await page.evaluate(() => document.querySelector(".skip").focus());
  const stops = [];
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press("Tab");
    const id = await page.evaluate(() => document.activeElement.id);
    if (id) stops.push(id);
    if (id === "input") break;
  }
  const order = ["new", "find", "open-dashboard", "theme", "open-keys", "open-options", "log", "input"];
  assert.deepEqual(stops.filter((s) => order.includes(s)), order);
});

test("on a narrow screen the list is a drawer and nothing sticks out", options, async () => {
  await page.setViewport({ width: 375, height: 720, hasTouch: true, isMobile: true });
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  await page.click("#open-side");
  await page.waitForFunction(() => document.getElementById("main").inert);
  await picture("drawer", { widths: [375] });
  await page.keyboard.press("Escape");
  assert.equal(await page.evaluate(() => document.getElementById("main").inert), false);
  await page.evaluate(() => { location.hash = "#/dashboard"; });
  await page.waitForSelector("#dashboard:not([hidden])");
  assert.ok(await page.evaluate(() => document.querySelector(".sheet").scrollWidth <= innerWidth));
});

test("a conversation stays with the model it was begun with", options, async () => {
  const file = fileURLToPath(new URL("../../models/ember-30m-q8_0.gguf", import.meta.url)), two = await start("--model", "first=" + file, "--model", "second=" + file), first = page;
  try {
    page = await newPage(two.address);
    await page.waitForFunction(() => document.getElementById("model").options.length === 2);
    await page.select("#model", "second");
    const asks = [];
    page.on("request", (r) => { if (/chat\/completions/.test(r.url())) asks.push(JSON.parse(r.postData()).model); });
    await exchange("Hello! Who are you?");
    await alt("KeyN");
    await page.select("#model", "first");
    await exchange("Tell me a story.");
    await page.evaluate(() => [...document.querySelectorAll("#list .entry")].find((e) => /Who are you/.test(e.textContent)).click());
    await page.waitForFunction(() => document.getElementById("model").value === "second");
    await exchange("My name is Ada.");
    assert.deepEqual(asks, ["second", "first", "second"]);
  } finally {
    await page.close();
    page = first;
    await two.stop();
  }
});

test("a server that asks for a key: the page asks for it", options, async () => {
  const locked = await start("--api-key", "a-key-for-tests");
  const own = await browser.createBrowserContext();
  try {
    const p = await newPage(locked.address, own);
    await p.waitForSelector("#key-dialog[open]");
    await picture("key", { on: p });
    await p.type("#key", "wrong");
    await p.keyboard.press("Enter");
    await p.waitForFunction(() => /not the right one/.test(document.getElementById("key-title").textContent) && document.getElementById("key-dialog").open);
    await p.type("#key", "a-key-for-tests");
    await p.keyboard.press("Enter");
    await p.waitForFunction(() => document.getElementById("model").value);
    await p.type("#input", "Hello!");
    await p.keyboard.press("Enter");
    await p.waitForFunction(() => document.querySelector("article.assistant .fact"));
  } finally {
    await own.close();
    await locked.stop();
  }
});

test("the page is served with a policy; nothing went wrong on the way", options, async () => {
  const reply = await fetch(server.address + "/");
  assert.match(reply.headers.get("content-security-policy"), /default-src 'none'; script-src 'self'/);
  assert.deepEqual(problems, []);
});
