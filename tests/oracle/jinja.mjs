// Compares chat templates as this project renders them with npm @huggingface/jinja, the evaluator of transformers.js.
//
//   npm ci --prefix tests/oracle
//   node tests/oracle/jinja.mjs RENDERER [TEMPLATE | FOLDER]...
//
// RENDERER is the program render_chat_template of the build. Templates and conversations as for jinja.py beside this
// file. That program's Jinja2 is the one that transformers uses, so where the two references disagree, jinja.py says
// which is right; with `python3` and its jinja2 at hand this program asks it and counts such cases apart. Exit status: 0
// if none of the other cases differ, 1 if some do, 77 if the package is missing.
//
//   node tests/oracle/jinja.mjs --render < QUESTIONS
//
// answers questions of the form that render_chat_template takes, for tools/make_jinja_cases.py.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
let Template;
try {
  ({ Template } = await import("@huggingface/jinja"));
} catch {
  console.log("skipped: @huggingface/jinja is not installed; run npm ci --prefix tests/oracle");
  process.exit(77);
}
const now = 1752148800;  // 10 July 2025, 12:00, as in jinja.py
process.env.TZ = "UTC";

// The package's strftime_now shows the clock on the wall, so that is set.
const RealDate = Date;
let clock = 0;
globalThis.Date = class extends RealDate {
  constructor(...given) { super(...(given.length > 0 ? given : [clock * 1000])); }
  static now() { return clock * 1000; }
};

const parsed = new Map();
function render(question) {
  clock = question.now ?? 0;
  try {
    if (!parsed.has(question.template)) parsed.set(question.template, new Template(question.template));
    const text = parsed.get(question.template).render({
      tools: null, documents: null, add_generation_prompt: false, ...structuredClone(question.variables),
      ...question.special_tokens,
    });
    return { text };
  } catch (error) {
    return { error: String(error?.message ?? error) };
  }
}

const lines = (text) => text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
const ask = (program, args, questions) => {
  const input = questions.map((question) => JSON.stringify(question) + "\n").join("");
  const result = spawnSync(program, args, { input, encoding: "utf8", maxBuffer: 1 << 30 });
  if (result.status === 77) return null;
  if (result.status !== 0) throw new Error(`${program}: ${result.stderr ?? result.error}`);
  return lines(result.stdout);
};

function* files(paths) {
  for (const name of paths) {
    if (!fs.statSync(name).isDirectory()) yield name;
    else for (const inside of fs.readdirSync(name, { recursive: true }).sort()) if (inside.endsWith(".jinja")) yield path.join(name, inside);
  }
}

if (process.argv[2] === "--render") {
  for (const question of lines(fs.readFileSync(0, "utf8"))) console.log(JSON.stringify(render(question)));
  process.exit(0);
}
const [renderer, ...given] = process.argv.slice(2);
const data = JSON.parse(fs.readFileSync(path.join(here, "conversations.json"), "utf8"));
const questions = [], names = [];
for (const file of files(given.length > 0 ? given : [path.join(here, "templates")])) {
  for (const [name, messages] of Object.entries(data.conversations)) {
    for (const withTools of [false, true]) {
      for (const [number, variant] of data.variants.entries()) {
        names.push(`${path.basename(file)}: ${name}${withTools ? " + tools" : ""}, variant ${number}`);
        questions.push({
          template: fs.readFileSync(file, "utf8"), now, special_tokens: data.special_tokens,
          variables: { messages, tools: withTools ? data.tools : null, documents: null, ...variant },
        });
      }
    }
  }
}
const ours = ask(renderer, [], questions);
const python = ask("python3", [path.join(here, "jinja.py"), "--render"], questions);
let same = 0, errors = 0, references = 0, differing = 0;
for (const [i, question] of questions.entries()) {
  const theirs = render(question);
  if (ours[i].text === theirs.text) {
    if (theirs.text === undefined) ++errors; else ++same;
  } else if (python !== null && python[i].text !== theirs.text && python[i].text === ours[i].text) {
    ++references;
  } else {
    ++differing;
    console.log(`${names[i]}:\n  ours   ${ours[i].error ?? JSON.stringify(ours[i].text)}\n  theirs ${theirs.error ?? JSON.stringify(theirs.text)}`);
  }
}
console.log(`${same} equal, ${errors} errors in both, ${references} where the references disagree and ours is as Jinja2, ${differing} different` +
            (python === null ? " (Jinja2 was not asked)" : ""));
process.exit(differing > 0 ? 1 : 0);
