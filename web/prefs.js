// prefs.js: what this browser keeps: preferences, and how the answers it saw went.

const read = (key, fallback) => {
  try { return JSON.parse(localStorage.getItem(key)) ?? fallback; } catch { return fallback; }
};
// False when the browser has no room or keeps nothing.
export function keep(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export const prefs = { theme: "", key: "", model: "", side: true, options: {}, ...read("hearth.prefs", {}) };
export const savePrefs = () => keep("hearth.prefs", prefs);

// Facts of answers (pace, first token, remembered) by the name of the text they end: the server keeps the texts, not these.
const MOST_FACTS = 400;
const facts = new Map(read("hearth.facts", []));
export const factsOf = (name) => facts.get(name);
export function keepFacts(name, value) {
  facts.delete(name);
  facts.set(name, value);
  while (facts.size > MOST_FACTS) facts.delete(facts.keys().next().value);
  keep("hearth.facts", [...facts]);
}

export const readLocal = () => read("hearth.branches", {});
export const writeLocal = (branches) => keep("hearth.branches", branches);
