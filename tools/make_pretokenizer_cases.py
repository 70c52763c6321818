#!/usr/bin/env python3
"""Writes tests/data/pretokenizer_cases.json: strings and the pieces that Kimi's pre-tokeniser cuts them into.

The oracle is the expression itself, run by Debian 12's python3-regex (its tables are Unicode 15.0, as ours). In it `\\s` is
written as White_Space: Python's `\\s` also has U+001C to U+001F, the released tokenizer's engine has not.

usage: tools/make_pretokenizer_cases.py > tests/data/pretokenizer_cases.json
"""
import json
import random

import regex

SPACE = r"\p{White_Space}"
UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
PREFIX = r"[^\r\n\p{L}\p{N}]?"
SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = regex.compile(
    "|".join([
        r"[\p{Han}]+",
        PREFIX + UPPER + "*" + LOWER + "+" + SUFFIX,
        PREFIX + UPPER + "+" + LOWER + "*" + SUFFIX,
        r"\p{N}{1,3}",
        rf" ?[^{SPACE}\p{{L}}\p{{N}}]+[\r\n]*",
        rf"{SPACE}*[\r\n]+",
        rf"{SPACE}+(?!\P{{White_Space}})",
        rf"{SPACE}+",
    ]),
    regex.V1,
)

CHOSEN = [
    "", " ", "  ", " \n", "\n ", "a b", "a  b", "a   b", "Hello world's END", "don't", "DON'T", "we'LLs", "it'\u017f", "'llama", "x'",
    "1's", "'", "''s", "camelCase", "HTMLParser", "\u0301A!", "!\u0301", "!!\u0301", " \u0301a", "\u0301\u0301B", "1234567", "1\u3007\u3007\u3007",
    " \u4e2d\u6587", "\u3000\u4e2d", " \u2e80x", "\u4e2d\u2e80", "!\u2e80", "x\u3005y", "\u3005x", "A\u4e2dB", "\u4e2dA's", "\ud55c\uad6dABC", "ABC\ud55c\uad6dDEF",
    "\u3042\u3044\u4e2d\u3046", "\u30ab\u30bf\u30ab\u30ca\u30fc\u4e2d", "\uff10\uff11\uff12\uff13", "!\n/x", "!\r\n\r\nx", "\u001c\u001c a", "\u180ea", "a\u0085b", "\t\tx",
    "  \n  \n  x", "\r\n\r\n", "x \n\n y ", "\u01c5x", "\u01c5\u02b0", "AB\u02b0C", "\u02b0A", "if (a>=b) {\n\treturn;\n}", "https://a.b/c?d=e&f",
    "\U0001f3c3\u200d\u2642\ufe0f", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e", "3.14e-10", "a_b-c", "  leading", "trailing  ",
]
ATOMS = (list("aAbZsStTrReEvVlLmMdD''''  \t\n\r!-.,/0129_") +
         list("\u017f\u212a\u00e9\u00c9\u01c5\u02b0\u3005\u4e2d\u6587\u3007\u2e80\u00aa\u05d0\u0627\ud55c\u3042\u30a2\u30fc\u0301\u0300\u20dd\u093e\u2167\u00bd\u0663\uff10\u00a0\u3000\u2028\u0085") +
         list("\u180e\u200b\u001c\u001f\U0001f600\U00016fe2\U00016ff0\U00020000\u0345\u03a9\u03c9\ufffd\u3001\ue000\U0010ffff") +
         ["'s", "'LL", "'\u017f", "\r\n", "  ", "don't"])


def draw(rng):
    atoms = rng.sample(ATOMS, rng.randint(2, 8)) if rng.random() < 0.6 else ATOMS
    text = ""
    for _ in range(rng.randint(1, 16)):
        x = rng.random()
        if x < 0.04:
            text += chr(rng.choice([rng.randrange(0xD800), rng.randrange(0xE000, 0x110000)]))
        elif x < 0.12:
            text += chr(rng.randrange(0x3100))
        else:
            text += rng.choice(atoms)
    return text


def main():
    rng = random.Random(20261101)
    texts = CHOSEN + [draw(rng) for _ in range(1500)]
    print("[")
    for i, text in enumerate(texts):
        pieces = [m.group() for m in PATTERN.finditer(text)]
        assert "".join(pieces) == text
        print(json.dumps(pieces) + ("," if i + 1 < len(texts) else ""))
    print("]")


main()
