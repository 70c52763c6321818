// Writes tests/data/tokenizers/byte_level.json, a tokenizer.json with the first tokens of the demo model's vocabulary, and
// byte_level_cases.json: for each family's way of cutting text, what Hugging Face's tokenizers make of some texts with it.
//
//   npm install --prefix /tmp/oracle --ignore-scripts @huggingface/tokenizers
//   node tests/oracle/make_tokenizer_cases.mjs /tmp/oracle
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { textGenerator } from "./texts.mjs";

const source = path.join(path.dirname(fileURLToPath(import.meta.url)), "../..");
const folder = path.join(source, "tests/data/tokenizers");
const { Tokenizer } = await import(
  pathToFileURL(path.join(process.argv[2], "node_modules/@huggingface/tokenizers/dist/tokenizers.mjs")));

// GPT-2's spelling of bytes.
const spelling = [];
for (let byte = 0, next = 256; byte < 256; ++byte) {
  const itself = (byte > 32 && byte < 127) || (byte > 160 && byte !== 173);
  spelling.push(String.fromCodePoint(itself ? byte : next++));
}
const ranks = new Map();  // of tokens, spelled
for (const line of fs.readFileSync(path.join(source, "models/tiny-k3/tiktoken.model"), "latin1").split("\n")) {
  if (ranks.size === 1000 || line === "") break;
  ranks.set([...Buffer.from(line.split(" ")[0], "base64")].map((byte) => spelling[byte]).join(""), ranks.size);
}
// The two tokens that a token is merged from: what the tokens before it make of it.
const merges = [];
for (const [token, rank] of ranks) {
  let parts = [...token];
  if (parts.length === 1) continue;
  for (;;) {
    let best = rank, at = -1;
    for (let i = 0; i + 1 < parts.length; ++i) {
      const r = ranks.get(parts[i] + parts[i + 1]);
      if (r !== undefined && r < best) [best, at] = [r, i];
    }
    if (at < 0) break;
    parts.splice(at, 2, parts[at] + parts[at + 1]);
  }
  if (parts.length === 2) merges.push(parts);
}

const split = (regex) => ({ type: "Split", pattern: { Regex: regex }, behavior: "Isolated", invert: false });
const bytes = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false };
const contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const upper = "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}", lower = "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}";
const prefix = "[^\\r\\n\\p{L}\\p{N}]?", end = "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const words = (numbers) => `${contraction}|${prefix}\\p{L}+|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${end}`;
const cased = (numbers, after, slash) =>
  `${prefix}${upper}]*${lower}]+${after}|${prefix}${upper}]+${lower}]*${after}|${numbers}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n${slash}]*|${end}`;
const noHan = "&&[^\\p{Han}]]";
const gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const cjk = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
const families = {
  "llama-bpe": { steps: [split(words("\\p{N}{1,3}"))], ignore_merges: true },
  qwen2: { steps: [split(words("\\p{N}"))], normalizer: { type: "NFC" } },
  "deepseek-v3": { steps: [split("\\p{N}{1,3}"), split("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"),
    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")] },
  "deepseek-coder": { steps: [split("[\r\n]"), split("\\s?\\p{L}+"), split("\\s?\\p{P}+"), split(cjk), split("\\p{N}")] },
  "gpt-2": { steps: [{ ...bytes, use_regex: true }], last: true },
  smollm: { steps: [split("\\p{N}"), { ...bytes, use_regex: true }], last: true },
  "gpt-4o": { steps: [split(cased("\\p{N}{1,3}", contraction + "?", "/"))] },
  tekken: { steps: [split(cased("\\p{N}", "", "/"))], ignore_merges: true },
  kimi: { steps: [split(`[\\p{Han}]+|${prefix}${upper}${noHan}*${lower}${noHan}+${contraction}?|${prefix}${upper}${noHan}+${lower}${noHan}*` +
    `${contraction}?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|${end}`)] },
  // Known in GGUF only.
  default: { steps: [split("[\\p{P}\\$\\+<=>\\^~\\|]+"), split(gpt2), split("\\p{N}+"), split("[0-9][0-9][0-9]")], gguf_only: true },
};

const size = ranks.size;
const names = [["<|begin|>", true], ["<|end|>", true], ["<think>", false]];
const json = {
  version: "1.0",
  added_tokens: names.map(([content, special], i) => ({ id: size + i, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special })),
  normalizer: null,
  pre_tokenizer: null,
  post_processor: { type: "TemplateProcessing", single: [{ SpecialToken: { id: "<|begin|>", type_id: 0 } }, { Sequence: { id: "A", type_id: 0 } }],
    pair: [], special_tokens: { "<|begin|>": { id: "<|begin|>", ids: [size], tokens: ["<|begin|>"] } } },
  decoder: { type: "ByteLevel", add_prefix_space: true, trim_offsets: true, use_regex: true },
  model: { type: "BPE", dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
    byte_fallback: false, ignore_merges: false, vocab: Object.fromEntries(ranks), merges },
};
fs.mkdirSync(folder, { recursive: true });
fs.writeFileSync(path.join(folder, "byte_level.json"), JSON.stringify(json) + "\n");

const text = textGenerator(20261203);
const texts = [];
while (texts.length < 40) {
  const t = [...text()].slice(0, 50).join("");
  if (!names.some(([name]) => t.includes(name))) texts.push(t);
}
const withNames = texts.slice(0, 9).map((t, i) => t + names[i % 3][0] + texts[i + 9] + names[(i + 1) % 3][0]);
const lines = [`"texts": ${JSON.stringify(texts)}`, `"with_names": ${JSON.stringify(withNames)}`];
const cases = [];
for (const [name, family] of Object.entries(families)) {
  const variant = structuredClone(json);
  variant.pre_tokenizer = { type: "Sequence", pretokenizers: [...family.steps, ...(family.last ? [] : [bytes])] };
  variant.normalizer = family.normalizer ?? null;
  variant.model.ignore_merges = family.ignore_merges ?? false;
  const tokenizer = new Tokenizer(variant, {});
  const ids = (t) => tokenizer.encode(t, { add_special_tokens: false }).ids;
  cases.push(JSON.stringify({ name, gguf_only: family.gguf_only ?? false, pre_tokenizer: variant.pre_tokenizer, normalizer: variant.normalizer,
    ignore_merges: variant.model.ignore_merges, ids: texts.map(ids), with_names: withNames.map(ids) }));
}
fs.writeFileSync(path.join(folder, "byte_level_cases.json"), `{${lines.join(",\n")},\n"families": [\n${cases.join(",\n")}\n]}\n`);
