// One measurement of llama.cpp through node-llama-cpp, printed as one JSON object, in the form that `myriad bench` has
// (README.md). The model is loaded anew each time; loading and a warm-up are not measured.
//
//   node llama.mjs decode|prefill MODEL.gguf --threads T [--prompt N] [--tokens N] [--flash-attention auto|on|off]
import {readFileSync, writeFileSync} from "node:fs";
import {parseArgs} from "node:util";

// One worker thread calls llama.cpp. Set before anything uses libuv's pool.
process.env.UV_THREADPOOL_SIZE = "1";
const {getLlama} = await import("node-llama-cpp");

function fail(message) {
    console.error(`llama.mjs: ${message}`);
    process.exit(2);
}

function options() {
    const {values, positionals} = parseArgs({
        allowPositionals: true,
        options: {
            threads: {type: "string", default: "1"},
            prompt: {type: "string"},
            tokens: {type: "string", default: "48"},
            "flash-attention": {type: "string", default: "auto"},
            json: {type: "boolean"},  // always so; accepted because `myriad bench` takes it
        },
    });
    const [mode, model] = positionals;
    if (positionals.length !== 2 || !["decode", "prefill"].includes(mode)) fail("expected decode|prefill MODEL.gguf");
    const count = (name, text) => {
        const n = Number(text);
        if (!Number.isInteger(n) || n < 1 || n > 1 << 20) fail(`--${name} is ${text}, expected 1 to 1048576`);
        return n;
    };
    const flash = {auto: "auto", on: true, off: false}[values["flash-attention"]];
    if (flash === undefined) fail(`--flash-attention is ${values["flash-attention"]}, expected auto, on or off`);
    return {
        mode,
        model,
        flash,
        threads: count("threads", values.threads),
        prompt: count("prompt", values.prompt ?? (mode === "decode" ? "16" : "512")),
        tokens: count("tokens", values.tokens),
    };
}

// The ids that are fed, whatever the model answers, so that both sides do the same work and a mixture of experts does
// not stay with the same few.
const fedToken = (i, vocabulary) => (17 + 7919 * i) % vocabulary;

// Feeds one token a step and samples greedily after each; returns the seconds that `count` steps take.
async function decode(sequence, vocabulary, first, count) {
    const answers = sequence.evaluate([fedToken(first, vocabulary)], {temperature: 0, yieldEogToken: true});
    const start = performance.now();
    let answer = await answers.next();
    for (let i = 1; i < count; ++i) answer = await answers.next(fedToken(first + i, vocabulary));
    const seconds = (performance.now() - start) / 1000;
    if (answer.done) throw new Error(`the model stopped before ${count} tokens`);
    await answers.return();
    return seconds;
}

// Evaluates all of a prompt in one batch; logits are made for its last position.
async function prefill(sequence, vocabulary, first, count) {
    const ids = Array.from({length: count}, (_, i) => fedToken(first + i, vocabulary));
    const start = performance.now();
    await sequence.controlledEvaluate(ids.map((id, i) => (i + 1 < count ? id : [id, {generateNext: {token: true}}])));
    return (performance.now() - start) / 1000;
}

async function measure(o, sequence, vocabulary) {
    if (o.mode === "prefill") {
        await prefill(sequence, vocabulary, 1, Math.min(o.prompt, 32));
        await sequence.clearHistory();
        return {tokens: o.prompt, seconds: await prefill(sequence, vocabulary, 0, o.prompt)};
    }
    await prefill(sequence, vocabulary, 0, o.prompt);
    await decode(sequence, vocabulary, o.prompt, 2);
    return {tokens: o.tokens, seconds: await decode(sequence, vocabulary, o.prompt + 2, o.tokens)};
}

const o = options();
const installed = JSON.parse(readFileSync(new URL("node_modules/node-llama-cpp/package.json", import.meta.url), "utf8"));
const log = [];
const llama = await getLlama({
    gpu: false,
    build: "never",
    usePrebuiltBinaries: true,
    skipDownload: true,
    maxThreads: o.threads,
    logLevel: "debug",
    logger: (_, message) => log.push(message.trimEnd()),
});
try {
    const model = await llama.loadModel({modelPath: o.model, gpuLayers: 0});
    const context = await model.createContext({
        contextSize: Math.max(o.prompt + o.tokens + 8, 64),
        batchSize: Math.max(512, o.prompt),
        threads: o.threads,
        flashAttention: o.flash,
        sequences: 1,
    });
    const vocabulary = model.fileInfo.metadata.tokenizer.ggml.tokens.length;
    const cpuBefore = process.cpuUsage();
    const wallBefore = performance.now();
    const {tokens, seconds} = await measure(o, context.getSequence(), vocabulary);
    const cpu = process.cpuUsage(cpuBefore);
    const wall = (performance.now() - wallBefore) * 1000;
    const text = log.join("\n");
    console.log(JSON.stringify({
        engine: "llama.cpp",
        version: `node-llama-cpp ${installed.version}, llama.cpp ${llama.llamaCppRelease.release}`,
        mode: o.mode,
        threads: o.threads,
        threads_used: context.currentThreads,
        cores_busy: Number(((cpu.user + cpu.system) / wall).toFixed(2)),
        tokens,
        seconds,
        tokens_per_second: tokens / seconds,
        flash_attention: o.flash,
        system: llama.systemInfo.trim(),
        library: /libggml-cpu-[a-z0-9_-]+\.so/.exec(readFileSync("/proc/self/maps", "utf8"))?.[0] ?? "unknown",
        buffers: [...text.matchAll(/(\S+) model buffer size = +([\d.]+ MiB)/g)].map((m) => `${m[1]} ${m[2]}`),
    }));
    if (process.env.LLAMA_LOG) writeFileSync(process.env.LLAMA_LOG, text + "\n");
} catch (error) {
    console.error(`llama.mjs: ${o.model}: ${error.message}\n${log.slice(-5).join("\n")}`);
    process.exit(1);
}
process.exit(0);
