#!/usr/bin/env python3
"""Trains tests/data/tokenizers/sentencepiece.model on the demo model's hold-out text, with Debian's sentencepiece, and writes
sentencepiece_cases.json: what the library makes of some texts with it.

usage: tests/oracle/make_sentencepiece_cases.py TEXTS   (packages sentencepiece and python3-sentencepiece)

TEXTS has a JSON string a line, such as `node tests/oracle/texts.mjs 400 7` prints.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import sentencepiece

SOURCE = Path(__file__).resolve().parents[2]
FOLDER = SOURCE / "tests/data/tokenizers"


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([
            "spm_train", f"--input={SOURCE}/models/tiny-k3/holdout.txt", f"--model_prefix={folder}/m", "--model_type=bpe",
            "--vocab_size=800", "--byte_fallback", "--normalization_rule_name=identity", "--remove_extra_whitespaces=false",
            "--user_defined_symbols=<think>,\u2581\u2581,don't,ab,bcd", "--control_symbols=<turn>", "--max_sentence_length=10000",
            "--minloglevel=2"], check=True)
        model = Path(folder, "m.model").read_bytes()
    (FOLDER / "sentencepiece.model").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").split("\n") if line]
    texts = ["", " ", "  ", "abcd", "abcdon't  ", " leading", "trailing ", "a  b", "<s>", "<turn>", "<unk>", "\u2581x"] + [t[:60] for t in texts]
    print("[", file=(out := open(FOLDER / "sentencepiece_cases.json", "w", encoding="utf-8")))
    print(",\n".join(json.dumps({"text": t, "ids": processor.encode(t), "decoded": processor.decode(processor.encode(t))},
                                ensure_ascii=False) for t in texts), file=out)
    print("]", file=out)


main()
