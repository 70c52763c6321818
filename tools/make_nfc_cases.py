#!/usr/bin/env python3
"""Writes tests/data/nfc_cases.json: pairs of a text and its normalization form C, by Python's unicodedata.

Python 3.11 has Unicode 14.0. Normalization of assigned characters never changes, so only those assigned there are used, and
the cases hold for 15.0 as well.

usage: tools/make_nfc_cases.py > tests/data/nfc_cases.json
"""
import json
import random
import unicodedata


def main():
    assigned = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    marks = [c for c in assigned if unicodedata.combining(chr(c))]
    changing = [c for c in assigned if unicodedata.normalize("NFD", chr(c)) != chr(c) and not 0xAC00 <= c <= 0xD7A3]
    parts = sorted({ord(x) for c in changing for x in unicodedata.normalize("NFD", chr(c))})
    jamo = list(range(0x1100, 0x1200))
    rng = random.Random(20261202)
    cases = []
    while len(cases) < 600:
        text = ""
        for _ in range(rng.randint(1, 10)):
            pool = rng.choice([marks, changing, parts, parts, jamo, range(0xAC00, 0xD7A4), assigned, range(0x20, 0x7F)])
            text += chr(rng.choice(pool))
        cases.append([text, unicodedata.normalize("NFC", text)])
    print("[")
    print(",\n".join(json.dumps(case) for case in cases))
    print("]")


main()
