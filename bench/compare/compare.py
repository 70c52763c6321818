#!/usr/bin/env python3
"""Runs llama.cpp and Myriad in turn on the same GGUF files with the same threads, and prints medians and ratios.

  compare.py MODEL.gguf … [--threads 1,2] [--modes decode,prefill] [--pairs 5] [--json OUT.json]

A pair is: llama.cpp (llama.mjs), then a plain reader of memory (`myriad bench read`), then Myriad (`myriad bench decode` or
`prefill`).  It counts if the reader got at least --floor, else somebody else was using the machine; pairs are repeated until --pairs
count or --attempts have been made.  A side that is not there is left out, so llama.cpp can be measured alone.  README.md says what
each side prints.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from gguf_bytes import bytes_per_token

HERE = Path(__file__).resolve().parent
LLAMA, MYRIAD = "llama.cpp", "myriad"
RUN_SECONDS = 900  # no measurement takes longer


def note(text):
    print(f"compare.py: {text}", file=sys.stderr, flush=True)


class Failed(Exception):
    pass


def run_json(command):
    """The one JSON object that a command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: exit code {done.returncode}: {done.stderr.strip()[-2000:]}")
    try:
        out = json.loads(done.stdout)
    except ValueError as error:
        raise Failed(f"{' '.join(command)}: expected one JSON object, found {done.stdout[:200]!r}") from error
    return out


def commands_of(myriad):
    """What `myriad bench` can measure."""
    try:
        shown = subprocess.run([myriad, "bench", "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return set()
    return set(re.findall(r"^ +([a-z]+) ", shown, re.MULTILINE))


class Bench:
    def __init__(self, options):
        self.o = options
        self.sides = [s for s in (LLAMA, MYRIAD) if not options.only or options.only == s]
        if LLAMA in self.sides and not (options.llama.parent / "node_modules/node-llama-cpp").is_dir():
            self.leave_out(LLAMA, f"run `npm install` in {options.llama.parent}")
        commands = commands_of(options.myriad)
        if "read" not in commands:
            raise Failed(f"{options.myriad} has no `bench read`, without which no pair can count: build it, or name another by --myriad")
        if MYRIAD in self.sides and not {"decode", "prefill"} <= commands:
            self.leave_out(MYRIAD, f"{options.myriad} has no `bench decode` and `bench prefill`")
        if not self.sides:
            raise Failed("nothing to measure")

    def leave_out(self, side, why):
        self.sides.remove(side)
        note(f"{side} is left out: {why}")

    def read(self, threads):
        """GB/s"""
        return run_json([self.o.myriad, "bench", "read", "--threads", str(threads), "--json"])["gigabytes_per_second"]

    def measure(self, side, mode, model, threads):
        size = ["--prompt", str(self.o.prompt)] if mode == "prefill" else ["--prompt", "16", "--tokens", str(self.o.tokens)]
        program = [self.o.node, str(self.o.llama)] if side == LLAMA else [self.o.myriad, "bench"]
        out = run_json(program + [mode, str(model), "--threads", str(threads), "--json"] + size)
        rate = out.get("tokens_per_second")
        if not isinstance(rate, (int, float)) or not rate > 0:
            raise Failed(f"{side} {mode} {model}: tokens_per_second is {rate!r}, expected a number above 0")
        return out

    def wait_for_quiet(self, threads, floor):
        """Until the reader gets what it should; after --patience seconds the pair is tried all the same."""
        deadline = time.monotonic() + self.o.patience
        while self.read(threads) < floor and time.monotonic() < deadline:
            time.sleep(2)

    def pair(self, mode, model, threads, floor):
        self.wait_for_quiet(threads, floor)
        out = {}
        for side in self.sides:
            if side == MYRIAD and LLAMA in self.sides:
                out["read"] = self.read(threads)
            out[side] = self.measure(side, mode, model, threads)
        out.setdefault("read", None)
        if out["read"] is None:
            out["read"] = self.read(threads)
        out["counts"] = out["read"] >= floor
        return out

    def pairs(self, mode, model, threads):
        floor = self.o.floor.get(threads, 0.0)
        out = []
        for _ in range(self.o.attempts):
            out.append(self.pair(mode, model, threads, floor))
            if sum(p["counts"] for p in out) == self.o.pairs:
                break
        return summary(model, mode, threads, floor, out)


def median(values):
    values = list(values)
    return statistics.median(values) if values else None


def summary(model, mode, threads, floor, pairs):
    counted = [p for p in pairs if p["counts"]]
    out = dict(model=model.name, mode=mode, threads=threads, floor=floor, pairs=len(pairs), counted=len(counted),
               read=median(p["read"] for p in counted))
    for side in (LLAMA, MYRIAD):
        runs = [p[side] for p in counted if side in p]
        rate = median(r["tokens_per_second"] for r in runs)
        size = median(r.get("bytes_per_token") or bytes_per_token(model) for r in runs) if mode == "decode" else None
        out[side] = dict(tokens_per_second=rate, bytes_per_token=size,
                         share_of_read=rate * size / out["read"] / 1e9 if rate and size and out["read"] else None)
    out["ratio"] = median(p[MYRIAD]["tokens_per_second"] / p[LLAMA]["tokens_per_second"] for p in counted
                          if LLAMA in p and MYRIAD in p)
    out["runs"] = pairs
    return out


COLUMNS = ("model", "mode", "threads", "llama.cpp tok/s", "myriad tok/s", "ratio", "reader GB/s", "llama.cpp of it", "myriad of it",
           "pairs that count")


def cells(row):
    number = lambda value, form: "–" if value is None else format(value, form)
    return (row["model"], row["mode"], str(row["threads"]), number(row[LLAMA]["tokens_per_second"], ".2f"),
            number(row[MYRIAD]["tokens_per_second"], ".2f"), number(row["ratio"], ".2f"), number(row["read"], ".1f"),
            number(row[LLAMA]["share_of_read"], ".0%"), number(row[MYRIAD]["share_of_read"], ".0%"),
            f"{row['counted']} of {row['pairs']}")


def table(rows):
    return "\n".join("| " + " | ".join(line) + " |" for line in [COLUMNS, ["---"] * len(COLUMNS)] + [cells(r) for r in rows])


def processor():
    try:
        found = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        return found[1] if found else ""
    except OSError:
        return ""


def list_of(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def floors(text):
    out = {}
    for part in text.split(","):
        threads, _, rate = part.partition("=")
        out[int(threads)] = float(rate)
    return out


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("models", metavar="MODEL.gguf", nargs="+", type=Path)
    p.add_argument("--threads", type=list_of(int), default=[1, 2])
    p.add_argument("--modes", type=list_of(str), default=["decode", "prefill"])
    p.add_argument("--pairs", type=int, default=5, help="that must count; default 5")
    p.add_argument("--attempts", type=int, default=15, help="at most so many pairs are made; default 15")
    p.add_argument("--floor", type=floors, default={1: 15.0, 2: 29.0}, metavar="T=GB/s,…",
                   help="what the reader must get with T threads; default 1=15,2=29; where none is given every pair counts")
    p.add_argument("--patience", type=float, default=60, help="seconds to wait before a pair for a quiet machine; default 60")
    p.add_argument("--prompt", type=int, default=512, help="tokens of prefill")
    p.add_argument("--tokens", type=int, default=48, help="steps of decode")
    p.add_argument("--only", choices=(LLAMA, MYRIAD))
    p.add_argument("--myriad", default=str(HERE.parent.parent / "build/release/myriad"))
    p.add_argument("--llama", type=Path, default=HERE / "llama.mjs", help="what --node runs for llama.cpp")
    p.add_argument("--node", default="node")
    p.add_argument("--json", type=Path, help="every run, and what the table says")
    o = p.parse_args()
    for model in o.models:
        if not model.is_file():
            p.error(f"{model}: no such file")
    if unknown := set(o.modes) - {"decode", "prefill"}:
        p.error(f"--modes: {', '.join(unknown)}, expected decode and prefill")
    rows = []
    try:
        bench = Bench(o)
        for model in o.models:
            for mode in o.modes:
                for threads in o.threads:
                    rows.append(bench.pairs(mode, model, threads))
                    note(" | ".join(cells(rows[-1])))
                    if o.json:
                        o.json.write_text(json.dumps(dict(processor=processor(), cores=os.cpu_count(), rows=rows), indent=1) + "\n")
    except Failed as error:
        note(str(error))
        return 1
    finally:
        if rows:
            print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
