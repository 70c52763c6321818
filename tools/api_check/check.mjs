// Checks an OpenAI-compatible server with OpenAI's own client.
//
//   node check.mjs BASE_URL MODEL        e.g. node check.mjs http://127.0.0.1:8080 tiny-k3
//
// Prints one line a check; exits 1 if any failed, 2 on wrong usage. OPENAI_API_KEY is sent if it is set. The model may be a base model that never
// closes its reasoning: what a chat answers is then its `reasoning_content`.
import OpenAI from 'openai';

const [base, model] = process.argv.slice(2);
if (!base || !model) {
  console.error('usage: node check.mjs BASE_URL MODEL');
  process.exit(2);
}
const origin = base.replace(/\/+$/, '').replace(/\/v1$/, '');
const client = new OpenAI({
  baseURL: `${origin}/v1`,
  apiKey: process.env.OPENAI_API_KEY || 'none',
  maxRetries: 0,
  timeout: 120_000,
});

const prompt = 'In the beginning God created';
const messages = [{ role: 'user', content: 'Who made the heaven and the earth?' }];

function expect(condition, sentence) {
  if (!condition) throw new Error(sentence);
}
function equal(actual, expected, what) {
  const [a, e] = [JSON.stringify(actual), JSON.stringify(expected)];
  expect(a === e, `${what}: ${a} instead of ${e}`);
}
async function fails(promise, Kind, what) {
  try {
    await promise;
  } catch (error) {
    expect(error instanceof Kind, `${what}: ${error?.constructor?.name} (${error?.message}) instead of ${Kind.name}`);
    expect(typeof error.message === 'string' && error.message.length > 0, `${what}: no message`);
    return error;
  }
  throw new Error(`${what}: it was accepted`);
}
// How much of a prompt was kept depends on what was asked before.
const counted = ({ prompt_tokens, completion_tokens, total_tokens }) => ({ prompt_tokens, completion_tokens, total_tokens });

function usageAddsUp(usage) {
  expect(usage.prompt_tokens > 0 && usage.completion_tokens > 0, `usage ${JSON.stringify(usage)}`);
  equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens, 'total_tokens');
  expect(usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens, 'more kept than a prompt has');
}
const reply = (message) => (message.reasoning_content ?? '') + (message.content ?? '');

const complete = (more) => client.completions.create({ model, prompt, max_tokens: 12, temperature: 0, ...more });
const chat = (more) => client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0, ...more });

async function streamedText(stream) {
  const texts = [];
  const finish = [];
  let usage = null;
  let chunks = 0;
  for await (const chunk of stream) {
    ++chunks;
    if (chunk.usage) usage = chunk.usage;
    for (const choice of chunk.choices) {
      texts[choice.index] = (texts[choice.index] ?? '') + (choice.text ?? reply(choice.delta));
      if (choice.finish_reason) finish[choice.index] = choice.finish_reason;
    }
  }
  return { texts, finish, usage, chunks };
}

const checks = {
  'models.list': async () => {
    const ids = [];
    for await (const m of client.models.list()) ids.push(m.id);
    expect(ids.includes(model), `${model} is not among ${ids}`);
  },
  'models.retrieve': async () => equal((await client.models.retrieve(model)).id, model, 'id'),
  'health and ready': async () => {
    equal((await fetch(`${origin}/health`)).status, 200, '/health');
    equal((await fetch(`${origin}/ready`)).status, 200, '/ready');
  },

  'completion': async () => {
    const c = await complete({});
    equal(c.object, 'text_completion', 'object');
    expect(c.choices[0].text.length > 0, 'an empty answer');
    expect(['stop', 'length'].includes(c.choices[0].finish_reason), c.choices[0].finish_reason);
    expect(c.usage.completion_tokens <= 12, 'more tokens than asked for');
    usageAddsUp(c.usage);
  },
  'completion, greedy twice is the same': async () =>
    equal((await complete({})).choices[0].text, (await complete({})).choices[0].text, 'second answer'),
  'completion, streamed equals whole': async () => {
    const whole = await complete({});
    const s = await streamedText(await complete({ stream: true, stream_options: { include_usage: true } }));
    equal(s.texts[0], whole.choices[0].text, 'text');
    equal(s.finish[0], whole.choices[0].finish_reason, 'finish_reason');
    equal(counted(s.usage), counted(whole.usage), 'usage');
    expect(s.chunks >= 3, `only ${s.chunks} chunks: not streamed`);
  },
  'completion, logprobs': async () => {
    const c = await complete({ logprobs: 3 });
    const l = c.choices[0].logprobs;
    equal(l.tokens.length, c.usage.completion_tokens, 'tokens');
    equal([l.token_logprobs.length, l.top_logprobs.length, l.text_offset.length], [l.tokens.length, l.tokens.length, l.tokens.length], 'lengths');
    for (let i = 0; i < l.tokens.length; ++i) {
      const best = Math.max(...Object.values(l.top_logprobs[i]));
      expect(l.token_logprobs[i] <= 0 && l.token_logprobs[i] >= best - 1e-5, `greedy token ${i} is not the likeliest`);
    }
    if (!l.tokens.some((t) => t.startsWith('bytes:'))) equal(l.tokens.join(''), c.choices[0].text, 'joined tokens');
  },
  'completion, n and seed': async () => {
    const ask = { n: 3, seed: 42, temperature: 1 };
    const a = (await complete(ask)).choices.map((c) => c.text);
    const b = (await complete(ask)).choices.map((c) => c.text);
    equal(a.length, 3, 'choices');
    equal(b, a, 'the same seed again');
    expect(new Set(a).size > 1, 'three choices are one and the same');
    const other = (await complete({ ...ask, seed: 43 })).choices.map((c) => c.text);
    expect(JSON.stringify(other) !== JSON.stringify(a), 'another seed gives the same');
    const s = await streamedText(await complete({ ...ask, stream: true }));
    equal(s.texts, a, 'streamed');
  },
  'completion, several prompts': async () => {
    const single = (await complete({})).choices[0].text;
    const many = await complete({ prompt: ['And God said', prompt] });
    equal(many.choices.map((c) => c.index), [0, 1], 'indices');
    equal(many.choices[1].text, single, 'the answer to a prompt among others');
  },
  'completion, stop': async () => {
    const whole = (await complete({})).choices[0].text;
    const stop = whole.slice(Math.floor(whole.length / 2), Math.floor(whole.length / 2) + 3);
    const expected = whole.slice(0, whole.indexOf(stop));
    const c = await complete({ stop });
    equal(c.choices[0].text, expected, 'text');
    equal(c.choices[0].finish_reason, 'stop', 'finish_reason');
    const s = await streamedText(await complete({ stop: ['\u0000never', stop], stream: true }));
    equal(s.texts[0] ?? '', expected, 'streamed text');
    equal(s.finish[0], 'stop', 'streamed finish_reason');
  },
  'completion, echo': async () => {
    const whole = (await complete({})).choices[0].text;
    equal((await complete({ echo: true })).choices[0].text, prompt + whole, 'text');
  },

  'chat': async () => {
    const c = await chat({});
    equal(c.object, 'chat.completion', 'object');
    equal(c.choices[0].message.role, 'assistant', 'role');
    expect(['stop', 'length', 'tool_calls'].includes(c.choices[0].finish_reason), c.choices[0].finish_reason);
    usageAddsUp(c.usage);
  },
  'chat, streamed equals whole': async () => {
    const whole = await chat({});
    const s = await streamedText(await chat({ stream: true, stream_options: { include_usage: true } }));
    equal(s.texts[0], reply(whole.choices[0].message), 'text');
    equal(s.finish[0], whole.choices[0].finish_reason, 'finish_reason');
    equal(counted(s.usage), counted(whole.usage), 'usage');
  },
  'chat, the client\'s own stream helper': async () => {
    const final = await client.chat.completions.stream({ model, messages, max_tokens: 8, temperature: 0 }).finalChatCompletion();
    equal(final.choices.length, 1, 'choices');
  },
  'chat, logprobs': async () => {
    const c = await chat({ logprobs: true, top_logprobs: 2 });
    const tokens = c.choices[0].logprobs.content;
    expect(tokens.length > 0 && tokens.length <= c.usage.completion_tokens, `${tokens.length} tokens`);
    for (const t of tokens) {
      equal(t.top_logprobs.length, 2, 'top_logprobs');
      expect(t.logprob <= 0 && t.bytes.every((b) => b >= 0 && b < 256), JSON.stringify(t));
    }
  },
  'chat, n and seed': async () => {
    const ask = { n: 2, seed: 7, temperature: 1 };
    const a = (await chat(ask)).choices.map((c) => reply(c.message));
    equal((await chat(ask)).choices.map((c) => reply(c.message)), a, 'the same seed again');
    equal(a.length, 2, 'choices');
  },
  'chat, conversation, tools and thinking': async () => {
    const c = await chat({
      messages: [
        { role: 'developer', content: 'Be brief.' },
        { role: 'user', content: [{ type: 'text', text: 'What is the weather?' }] },
        { role: 'assistant', content: null, tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city": "Paris"}' } }] },
        { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
      ],
      tools: [{ type: 'function', function: { name: 'weather', description: 'x', parameters: { type: 'object', properties: {} } } }],
      tool_choice: 'auto',
      thinking: { type: 'disabled' },
      max_completion_tokens: 4,
      max_tokens: undefined,
    });
    equal(c.choices.length, 1, 'choices');
  },

  'abort of a stream': async () => {
    const stream = await complete({ stream: true, max_tokens: 100 });
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 2) break;  // leaving the loop aborts the request
    }
    expect(stream.controller.signal.aborted || chunks < 2, 'the stream was not aborted');
    expect((await complete({ max_tokens: 1 })).choices.length === 1, 'the server does not serve any more');
  },
  'abort of a whole answer': async () => {
    const controller = new AbortController();
    const asked = client.completions.create({ model, prompt, max_tokens: 200 }, { signal: controller.signal });
    setTimeout(() => controller.abort(), 20);
    // A very fast model may have answered before.
    await asked.catch((error) => expect(error instanceof OpenAI.APIUserAbortError, `${error}`));
    expect((await complete({ max_tokens: 1 })).choices.length === 1, 'the server does not serve any more');
  },

  'BadRequestError: wrong type': async () => equal((await fails(complete({ temperature: 'hot' }), OpenAI.BadRequestError, 'temperature')).param, 'temperature', 'param'),
  'BadRequestError: out of range': async () => equal((await fails(complete({ top_p: 7 }), OpenAI.BadRequestError, 'top_p')).param, 'top_p', 'param'),
  'BadRequestError: unsupported': async () => equal((await fails(complete({ presence_penalty: 1 }), OpenAI.BadRequestError, 'penalty')).code, 'unsupported_parameter', 'code'),
  'BadRequestError: no messages': async () => equal((await fails(chat({ messages: [] }), OpenAI.BadRequestError, 'messages')).param, 'messages', 'param'),
  'BadRequestError: picture': async () =>
    equal((await fails(chat({ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:,' } }] }] }), OpenAI.BadRequestError, 'picture')).code, 'unsupported_content', 'code'),
  'BadRequestError: past the context': async () =>
    equal((await fails(complete({ max_tokens: 100_000_000 }), OpenAI.BadRequestError, 'context')).code, 'context_length_exceeded', 'code'),
  'BadRequestError: in a stream\'s request': async () => void (await fails(complete({ stream: true, n: 0 }), OpenAI.BadRequestError, 'n')),
  'NotFoundError: model': async () => equal((await fails(complete({ model: 'no-such-model' }), OpenAI.NotFoundError, 'model')).code, 'model_not_found', 'code'),
  'NotFoundError: models.retrieve': async () => void (await fails(client.models.retrieve('no-such-model'), OpenAI.NotFoundError, 'model')),
  'NotFoundError: route': async () => void (await fails(client.embeddings.create({ model, input: 'x' }), OpenAI.NotFoundError, 'embeddings')),
  'malformed JSON': async () => {
    const r = await fetch(`${origin}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${process.env.OPENAI_API_KEY || 'none'}` },
      body: '{"model": ',
    });
    equal(r.status, 400, 'status');
    equal((await r.json()).error.type, 'invalid_request_error', 'type');
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok    ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAIL  ${name}: ${error?.message ?? error}`);
  }
}
console.log(failed === 0 ? `all ${Object.keys(checks).length} checks passed` : `${failed} of ${Object.keys(checks).length} checks failed`);
process.exit(failed === 0 ? 0 : 1);
