// side.js: the list of conversations with their tiers, and what can be done with one.
import { act, agents, branches, familyOf, families, remove, syncAgents } from "./book.js";
import { $, announce, button, count, element, icon, many } from "./dom.js";
import { runs } from "./runs.js";

const tiers = {
  hot: "in memory: it answers at once",
  warm: "on disk: read back in moments",
  cold: "only its text is kept: it is read again first",
};
let actions = {}; // set by the page: open(branch), removed(family), failed(problem), changed()
let filter = "";
export const onSide = (given) => { actions = given; };

// ---- a menu ----

function menu(anchor, entries) {
  const box = element("div", null, { class: "menu", role: "menu", popover: "auto" });
  for (const [text, drawing, action, kind] of entries) {
    const b = button(text, () => { box.hidePopover(); action(); }, { icon: drawing, kind: "quiet" + (kind ? " " + kind : ""), role: "menuitem" });
    box.append(b);
  }
  document.body.append(box);
  box.addEventListener("toggle", (e) => {
    if (e.newState === "open") return;
    anchor.setAttribute("aria-expanded", "false");
    if (box.contains(document.activeElement) || document.activeElement === document.body) anchor.focus();
    setTimeout(() => box.remove());
  });
  box.addEventListener("keydown", (e) => {
    const all = [...box.children], at = all.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1 + all.length, Home: 0, End: all.length - 1 }[e.key];
    if (to === undefined) return;
    e.preventDefault();
    all[to % all.length].focus();
  });
  box.showPopover();
  anchor.setAttribute("aria-expanded", "true");
  const at = anchor.getBoundingClientRect();
  box.style.left = Math.max(8, Math.min(at.left, innerWidth - box.offsetWidth - 8)) + "px";
  box.style.top = (at.bottom + box.offsetHeight + 8 > innerHeight ? at.top - box.offsetHeight - 4 : at.bottom + 4) + "px";
  box.firstChild.focus();
}

async function change(text, work) {
  try {
    await work();
    announce(text);
  } catch (problem) {
    actions.failed(problem);
  }
  await syncAgents(true);
  actions.changed();
}

// The longest first: what another branch goes on from stays in memory as long as that one does.
async function evict(family) {
  const longest = family.branches.filter((b) => b.agent).sort((x, y) => y.agent.tokens - x.agent.tokens);
  for (const b of longest) await act(b, "evict");
}

function entriesOf(family) {
  const b = family.newest, out = [];
  if (b.agent) {
    const pinned = family.pinned;
    out.push([pinned ? "Unpin" : "Pin", "pin", () => change(pinned ? "Unpinned." : "Pinned.", () => Promise.all(family.branches.filter((x) => x.agent).map((x) => act(x, "pin", { pinned: !pinned }))))]);
    if (family.tier === "hot") out.push(["Move to disk", "disk", () => change("Moved to disk.", () => evict(family))]);
    out.push(["Fork", "branch", () => change("Forked.", async () => {
      const agent = await act(b, "fork", { id: "chat-" + Date.now().toString(36) });
      await syncAgents();
      if (branches.has(agent.id)) actions.open(branches.get(agent.id));
    })]);
  }
  out.push(["Delete", "trash", () => confirmDelete(family), "danger"]);
  return out;
}

function confirmDelete(family) {
  const box = $("confirm");
  $("confirm-text").textContent = `“${family.title}”` + (family.branches.length > 1 ? ` and its ${family.branches.length - 1 > 1 ? family.branches.length - 1 + " other branches" : "other branch"}` : "") +
    (family.branches.some((b) => b.agent) ? " will be deleted, here and on the server." : " will be deleted.");
  box.returnValue = "";
  box.showModal();
  box.onclose = () => {
    if (box.returnValue !== "yes") return;
    for (const b of family.branches) runs.get(b.id)?.abort.abort();
    actions.removed(family);
    change("Deleted.", () => remove(family.branches));
  };
}

// ---- the list ----

function day(ms) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (ms >= midnight) return "Today";
  if (ms >= midnight - 864e5) return "Yesterday";
  if (ms >= midnight - 6 * 864e5) return "This week";
  return "Earlier";
}

const isBusy = (family) => family.running || family.branches.some((b) => runs.has(b.id));

function detail(family) {
  const parts = [isBusy(family) ? "answering" : family.tier ?? "in this browser"];
  if (family.tokens) parts.push(many(family.tokens, "token"));
  if (family.branches.length > 1) parts.push(`${family.branches.length} branches`);
  return parts.join(" · ");
}

// open: the branch that is open, when it is one of these.
function row(family, open) {
  const tier = element("span", null, { class: `tier ${family.tier ?? "none"}${isBusy(family) ? " busy" : ""}`, "aria-hidden": "true" });
  const line = element("span", [family.pinned ? icon("pin") : null, element("span", detail(family))], { class: "detail" });
  const name = element("button", [tier, element("span", family.title, { class: "name" }), line], {
    type: "button", class: "entry", title: family.tier ? `${family.tier}: ${tiers[family.tier]}` : "The server does not keep this conversation", "aria-current": open ? "true" : null,
  });
  name.addEventListener("click", () => actions.open(open ?? family.newest));
  const more = button("", () => menu(more, entriesOf(family)), { icon: "more", label: "More for " + family.title, kind: "quiet more", "aria-haspopup": "menu", "aria-expanded": "false" });
  return element("li", [name, more], { class: open ? "open" : null, "data-id": family.id });
}

// For who is here for the first time.
function hint() {
  const lines = agents.known ? Object.entries(tiers).map(([name, text]) => element("p", [element("span", null, { class: "tier " + name, "aria-hidden": "true" }), `${name}: ${text}`])) : [];
  return [element("p", "Conversations will be listed here" + (lines.length ? ", with where they are kept:" : ".")), ...lines];
}

const MOST_ROWS = 200;
let shownKey = "";
export function showSide(current) {
  const wanted = filter.toLowerCase(), all = families();
  const list = wanted ? all.filter((f) => f.title.toLowerCase().includes(wanted) || f.id.toLowerCase().includes(wanted)) : all;
  const own = current ? familyOf(current.id) : null;
  const key = JSON.stringify([own, wanted, agents.known, list.map((f) => [f.id, f.title, f.tier, detail(f), f.pinned, isBusy(f), day(f.used)])]);
  showTotals(all);
  if (key === shownKey) return;
  shownKey = key;
  const focused = document.activeElement?.closest?.("#list li")?.dataset.id, wasMore = document.activeElement?.classList.contains("more");
  const groups = new Map();
  for (const f of list.slice(0, MOST_ROWS)) {
    const name = f.pinned ? "Pinned" : day(f.used);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(f);
  }
  const names = ["Pinned", "Today", "Yesterday", "This week", "Earlier"].filter((n) => groups.has(n));
  $("list").replaceChildren(...names.flatMap((n) => [element("h2", n), element("ul", groups.get(n).map((f) => row(f, f.id === own ? current : null)))]));
  if (list.length > MOST_ROWS) $("list").append(element("div", `${count(list.length - MOST_ROWS)} more are found by their title.`, { class: "empty" }));
  if (!list.length) $("list").append(element("div", wanted ? "Nothing has this in its title." : hint(), { class: "empty" }));
  if (focused) $("list").querySelector(`li[data-id="${CSS.escape(focused)}"] .${wasMore ? "more" : "entry"}`)?.focus();
}

function showTotals(all) {
  const counts = { hot: 0, warm: 0, cold: 0 };
  for (const f of all) if (f.tier) counts[f.tier]++;
  const box = $("totals");
  box.hidden = !agents.known;
  const text = Object.keys(counts).map((t) => `${count(counts[t])} ${t}`);
  if (box.dataset.text === text.join()) return;
  box.dataset.text = text.join();
  box.replaceChildren(...Object.keys(counts).map((t, i) => element("span", [element("span", null, { class: "tier " + t, "aria-hidden": "true" }), text[i]], { title: `${t}: ${tiers[t]}` })));
}

export function setFilter(text, current) {
  filter = text.trim();
  showSide(current);
}
