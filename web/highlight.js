// highlight.js: code in a few colours. One lexer for all languages: comments, strings, numbers, words that many languages share.
import { element } from "./dom.js";

const words = new Set(("and as assert async await bool boolean break case catch char class const constexpr continue def default defer del delete do double elif else end enum export extends extern " +
  "false final finally float fn for from func function global go goto if impl implements import in include inline instanceof int interface is lambda let local long loop match mod module mut " +
  "namespace new nil none not null of operator or package pass private protected pub public raise ref register return select self short signed sizeof static string struct super switch template " +
  "then this throw trait true try type typedef typeof undefined union unless unsigned until use using var virtual void volatile when where while with yield echo fi done esac " +
  "None True False SELECT FROM WHERE INSERT INTO UPDATE DELETE CREATE TABLE JOIN ON AND OR NOT NULL GROUP BY ORDER LIMIT VALUES SET").split(" "));
const hashes = new Set(["py", "python", "sh", "bash", "shell", "zsh", "rb", "ruby", "yaml", "yml", "toml", "make", "makefile", "perl", "r", "dockerfile", "nix", "ini", "conf"]);
const dashes = new Set(["sql", "lua", "haskell", "hs", "ada"]);
const plain = new Set(["text", "txt", "plain", "md", "markdown", "output", "log", ""]);

const MOST = 60000; // longer code stays in one colour

function lexer(language) {
  const comment = hashes.has(language) ? "#[^\\n]*" : dashes.has(language) ? "--[^\\n]*" : "\\/\\/[^\\n]*|\\/\\*[\\s\\S]*?(?:\\*\\/|(?![\\s\\S]))|^[ \\t]*#[a-z]+";
  const markup = language === "html" || language === "xml" || language === "svg";
  return new RegExp([
    `(${markup ? "<!--[\\s\\S]*?(?:-->|(?![\\s\\S]))" : comment})`,
    "(\"(?:\\\\.|[^\"\\\\\\n])*\"?|'(?:\\\\.|[^'\\\\\\n])*'|`(?:\\\\.|[^`\\\\])*`?)",
    "\\b(0[xXbB][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)",
    "([A-Za-z_$][\\w$]*)(?=(\\s*\\()?)",
  ].join("|"), "gm");
}

export function highlight(text, language) {
  language = language.toLowerCase();
  if (plain.has(language) || text.length > MOST) return [text];
  const out = [];
  let at = 0;
  for (const m of text.matchAll(lexer(language))) {
    const kind = m[1] !== undefined ? "comment" : m[2] !== undefined ? "string" : m[3] !== undefined ? "number" : words.has(m[4]) ? "word" : m[5] !== undefined ? "call" : null;
    if (!kind) continue;
    if (m.index > at) out.push(text.slice(at, m.index));
    out.push(element("span", m[0], { class: "t-" + kind }));
    at = m.index + m[0].length;
  }
  out.push(text.slice(at));
  return out;
}
