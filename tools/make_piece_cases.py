#!/usr/bin/env python3
"""Writes tests/data/piece_cases.json: texts, and for each rule of src/model/piece_rules.h the lengths, in characters, of the
pieces that the regular expression itself cuts them into.

The expressions are those of the released tokenizer.json files, run by Debian 12's python3-regex (its tables are Unicode
15.0, as ours), with `\\s` written as White_Space: Python's also has U+001C to U+001F.

usage: tools/make_piece_cases.py > tests/data/piece_cases.json
"""
import json
import random

import regex

CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = "|".join([
    r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+%s", r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*%s",
    r"%s| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"])
RULES = {
    "llama3_piece": WORDS % r"\p{N}{1,3}",
    "qwen2_piece": WORDS % r"\p{N}",
    "gpt2_piece": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "o200k_piece": CASED % (CONTRACTION + "?", CONTRACTION + "?", r"\p{N}{1,3}"),
    "tekken_piece": CASED % ("", "", r"\p{N}"),
    "one_number": r"\p{N}",
    "three_numbers": r"\p{N}{1,3}",
    "all_numbers": r"\p{N}+",
    "three_ascii_digits": "[0-9][0-9][0-9]",
    "one_line_end": "[\r\n]",
    "space_at_end": r"\s+\Z",
    "punctuation_run": r"[\p{P}\$\+<=>\^~\|]+",
    "deepseek_v3_cjk": "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "deepseek_v3_words": "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                         " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "deepseek_cjk": "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
    "deepseek_coder_letters": r"\s?\p{L}+",
    "deepseek_coder_punctuation": r"\s?\p{P}+",
    "deepseek_llm_punctuation": "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
}
SPECIAL = [
    " ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u001c", "'s", "'S", "'\u017f", "'ll", "'LL", "'", "/", "_", "-", "$", "+",
    "<", "=", "^", "|", "~", "\u201c", "\u3002", "\uff01", "\u30fb", "\u30fc", "\u309b", "0", "7", "12", "123", "1234", "\u0663", "\u00bd", "\u2167", "\uff11", "a", "B",
    "word", "Word", "WORD", "\u00e9", "\u00c9", "\u01c5", "\u02b0", "\u4e2d", "\u6587", "\u3042", "\u30ab", "\ud55c", "\u0e2a", "\u0928\u092e", "\u0301", "\u0345", "\u20dd",
    "\u200b", "\u00ad", "\u0000", "\ue000", "\U00010400", "\U0001d400", "\U0001f600", "\U00020000", "\U0010ffff", "\u2c7c", "\ufb01", "\u1c80", "\u0560",
]


def draw(rng):
    atoms = rng.sample(SPECIAL, rng.randint(2, 7)) if rng.random() < 0.6 else SPECIAL
    text = ""
    for _ in range(rng.randint(1, 14)):
        x = rng.random()
        if x < 0.05:
            text += chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
        elif x < 0.12:
            text += chr(rng.randrange(0x3100))
        else:
            text += rng.choice(atoms)
    return text


def lengths(pattern, text):
    """Of the matches and of what lies between them."""
    out, at = [], 0
    for match in pattern.finditer(text):
        if match.start() > at:
            out.append(match.start() - at)
        if match.end() > match.start():
            out.append(match.end() - match.start())
        at = match.end()
    if at < len(text):
        out.append(len(text) - at)
    return out


def main():
    rng = random.Random(20261201)
    texts = [draw(rng) for _ in range(400)]
    print('{"texts": [')
    print(",\n".join(json.dumps(text) for text in texts))
    print('],\n"rules": {')
    rules = []
    for name, expression in RULES.items():
        spelled = expression.replace(r"[^\s", r"[^\p{White_Space}").replace(r"(?!\S)", r"(?!\P{White_Space})")
        pattern = regex.compile(spelled.replace(r"\s", r"\p{White_Space}"), regex.V1)
        rules.append(f'"{name}": ' + json.dumps([lengths(pattern, text) for text in texts], separators=(",", ":")))
    print(",\n".join(rules))
    print("}}")


main()
