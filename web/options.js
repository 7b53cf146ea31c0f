// options.js: the panel with sampling options, the model, light and dark, the key.
import { getJson, onKeyWanted, server } from "./api.js";
import { $, bytes, count, element } from "./dom.js";
import { prefs, savePrefs } from "./prefs.js";

const form = $("options-form"), panel = $("options");
const start = { temperature: 0.8, top_p: 0.95, min_p: 0.05 }; // where a slider stands while the number is the server's

// ---- the panel ----

function fromPrefs() {
  for (const field of form.elements) if (field.name) field.value = prefs.options[field.name] ?? "";
  for (const slider of form.querySelectorAll("[data-for]")) slide(slider);
  showRules();
  mark();
}

function slide(slider) {
  const value = form.elements[slider.dataset.for].value;
  slider.value = value === "" ? start[slider.dataset.for] : value;
  slider.classList.toggle("auto", value === "");
  slider.setAttribute("aria-valuetext", value === "" ? "left to the server" : value);
}

const kinds = { schema: ["Schema", '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'], grammar: ["Rules", 'root ::= "yes" | "no"'], regex: ["Expression", "[A-Z][a-z]+"] };
function showRules() {
  const kind = kinds[form.elements.shape.value];
  $("rules-label").hidden = !kind;
  if (kind) {
    $("rules-label").firstChild.textContent = kind[0];
    form.elements.rules.placeholder = kind[1];
  }
  let problem = "";
  if (form.elements.shape.value === "schema" && form.elements.rules.value.trim()) {
    try { JSON.parse(form.elements.rules.value); } catch (e) { problem = "No valid JSON: " + e.message; }
  }
  $("rules-problem").hidden = !problem;
  $("rules-problem").textContent = problem;
}

// A dot at the button while something differs from the server's own.
function mark() {
  const set = Object.entries(prefs.options).some(([name, value]) => name !== "rules" && value !== "");
  $("open-options").classList.toggle("marked", set);
}

form.addEventListener("input", (e) => {
  if (e.target.dataset.for) form.elements[e.target.dataset.for].value = e.target.value;
  for (const field of form.elements) if (field.name && field.validity.valid) prefs.options[field.name] = field.value;
  for (const slider of form.querySelectorAll("[data-for]")) slide(slider);
  showRules();
  mark();
  savePrefs();
});
form.addEventListener("submit", (e) => e.preventDefault());
$("reset-options").addEventListener("click", () => {
  prefs.options = {};
  savePrefs();
  fromPrefs();
});

export function toggleOptions(open = panel.hidden) {
  if (panel.hidden === !open) return;
  panel.hidden = !open;
  $("open-options").setAttribute("aria-expanded", String(open));
  if (open) form.elements.system.focus({ preventScroll: true });
  else $("open-options").focus();
}
$("open-options").addEventListener("click", () => toggleOptions());
$("close-options").addEventListener("click", () => toggleOptions(false));
panel.addEventListener("keydown", (e) => {
  if (e.key !== "Escape") return;
  e.stopPropagation();
  toggleOptions(false);
});

// ---- models ----

export async function readModels() {
  const { data } = await getJson("v1/models");
  const select = $("model"), names = data.map((m) => m.id);
  select.replaceChildren(...names.map((name) => element("option", name, { value: name })));
  if (!names.includes(prefs.model)) prefs.model = "";
  select.value = prefs.model || names[0] || "";
  select.disabled = names.length < 2;
  const meta = data.find((m) => m.id === select.value)?.meta;
  $("about").textContent = `hearth ${server.health?.version ?? ""}` + (meta?.n_params ? ` · ${select.value}: ${count(Math.round(meta.n_params / 1e6))} million parameters, ${bytes(meta.size)}, ${count(meta.n_ctx)} tokens of context` : "");
}
$("model").addEventListener("change", () => {
  prefs.model = $("model").value;
  savePrefs();
});

// ---- light and dark ----

const themes = { "": "as the system", light: "light", dark: "dark" };
function applyTheme() {
  if (prefs.theme) document.documentElement.dataset.theme = prefs.theme;
  else delete document.documentElement.dataset.theme;
  const label = `Appearance: ${themes[prefs.theme]}`;
  $("theme").setAttribute("aria-label", label);
  $("theme").title = label;
}
$("theme").addEventListener("click", () => {
  const all = Object.keys(themes);
  prefs.theme = all[(all.indexOf(prefs.theme) + 1) % all.length];
  savePrefs();
  applyTheme();
});

// ---- the key ----

onKeyWanted((wrong) => new Promise((done) => {
  const box = $("key-dialog");
  $("key-title").textContent = wrong ? "This key is not the right one" : "This server asks for a key";
  $("key").value = "";
  box.returnValue = "";
  box.onclose = () => done(box.returnValue === "yes" ? $("key").value.trim() || null : null);
  box.showModal();
  $("key").focus();
}));

$("no-key").addEventListener("click", () => $("key-dialog").close(""));

applyTheme();
fromPrefs();
