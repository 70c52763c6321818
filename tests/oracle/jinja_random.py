#!/usr/bin/env python3
"""Compares random small templates as this project renders them with Jinja itself, set up as transformers does.

usage: jinja_random.py RENDERER [COUNT [SEED]]

Prints the differences and a count; exits 1 if there are any, 77 if Jinja is not installed.
"""
import json
import random
import sys
import warnings

from jinja import ask, environment  # exits with 77 without Jinja

STRINGS = ["", "a", "Hello World", "  pad \n", "äöü ß Σας", "a,b,,c", "x=1&y=<b>", "it's", 'say "hi"', "it's \"both\"", "line\nbreak\r\nnext\n", "12", " -7 ", "3.5",
           "1e3", "😀 你好", "\t\u00a0tab\u3000", "abcabc", "ABC", "ǆ ﬁ İ", "%s and %d", "{} {0}", "\u2028x\u0085", "\\", "\x00\x1f\x7f", "</think>a</think>b", "e\u0301\u200b", "_x_"]
NUMBERS = ["0", "1", "2", "-1", "7", "100", "-13", "2.5", "-0.5", "1e20", "1e-7", "3.0", "0.1", "12345", "1.0e16", "9007199254740993000"]
VARIABLES = {
    "s": "Some Text", "e": "", "n": 5, "f": 2.25, "t": True, "b": False, "z": None, "l": [3, 1, 2], "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "items": [1], "C": None}, "m": [{"role": "user", "content": "hi", "n": 2}, {"role": "tool", "content": None, "n": 1}, {"role": "User"}],
    "nest": {"k": [{"v": [1, [2, {"deep": "ü"}]]}, []], "t": {"x": {}}}, "big": 12345678901234567890, "u8": "gr\u00fc\u00dfe \ud83d\ude00", "mixed": [1, "a", None, 2.0, True],
}
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable", "true", "false", "even", "odd", "upper", "lower",
         "callable", "divisibleby(3)", "eq('a')", "in(l)", "sameas(none)", "ge(2)", "equalto(s)", "ne(1)", "lt(3)", "divisibleby 2", "in ['a', 1]"]
FILTERS = ["trim", "length", "count", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "join", "join(', ')", "join('-', attribute='role')",
           "default('D')", "default('D', true)", "d(0)", "first", "last", "upper", "lower", "title", "capitalize", "replace('a', 'bb')", "replace('', '.')", "replace('l', '', 1)", "string", "int", "int(9)",
           "int(default=-1, base=16)", "float", "float(1.5)", "list", "items|list", "dictsort", "dictsort(by='value')", "dictsort(true, reverse=true)", "map('upper')|list",
           "map(attribute='role')|list", "map(attribute='content', default='none')|join(',')", "selectattr('role')|list", "selectattr('role', 'equalto', 'user')|list", "rejectattr('n', 'defined')|list|length",
           "select('string')|list", "reject('none')|list", "select|list", "sort", "sort(reverse=true)", "sort(attribute='role')", "sort(case_sensitive=true)", "unique|list", "reverse|list", "reverse", "indent",
           "indent(2, true)", "indent('> ', first=true, blank=true)", "abs", "round", "round(1)", "round(1, 'floor')", "round(method='ceil')", "min", "max", "sum", "sum(start=10)", "sum(attribute='n')",
           "max(attribute='n')", "trim('ab ')", "format(1, 'x')", "select('gt', 1)|list", "map('int')|list", "map(attribute='v.1.0')|list", "map('default', 'x')|list", "list|last", "unique(attribute='role')|list|length"]
METHODS = ["strip()", "strip('a ')", "lstrip()", "rstrip('\\n')", "split()", "split(',')", "split('a', 1)", "split(none, 1)", "rsplit('a', 1)", "splitlines()", "splitlines(true)", "startswith('a')", "endswith(('c', 'd'))",
           "startswith('b', 1)", "upper()", "lower()", "title()", "capitalize()", "replace('b', 'X')", "replace('', '-', 2)", "find('b')", "rfind('b')", "find('')", "count('a')", "count('')", "join(['x', 'y'])", "isdigit()", "isalpha()",
           "isspace()", "isupper()", "islower()", "isalnum()", "removeprefix('a')", "removesuffix('c')", "partition(',')", "rpartition('b')", "format(1, 2)", "format(a=1)", "keys()", "values()", "items()", "get('a')", "get('q', 7)",
           "items()|list", "keys()|list|join", "index(1)", "index('b')", "get('q')", "nope()", "foo", "role", "a", "0", "items", "content", "k", "t.x", "n"]


class Writer:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *options):
        return self.random.choice(options)

    def literal(self):
        kind = self.random.randrange(8)
        if kind < 3:
            return json.dumps(self.random.choice(STRINGS), ensure_ascii=False) if self.random.random() < 0.5 else repr(self.random.choice(STRINGS)).replace("\\x00", "\\0")
        if kind < 5:
            return self.random.choice(NUMBERS)
        return self.pick("true", "false", "none", "True", "[]", "{}", "()", "(1,)", "[1, 'a', none]", "{'a': 1, 'b': [2]}", "{1: 2, 'x': {}}", "('a', 'b')", "undefined_name", "dict(a=1, b='x')")

    def expression(self, depth):
        if depth <= 0:
            return self.random.choice(list(VARIABLES)) if self.random.random() < 0.6 else self.literal()
        sub = lambda: self.expression(depth - 1 - self.random.randrange(2))
        kind = self.random.randrange(17)
        if kind < 4:
            return f"{self.wrapped(sub())}|{self.random.choice(FILTERS)}"
        if kind < 6:
            return f"{self.wrapped(sub())}.{self.random.choice(METHODS)}"
        if kind == 6:
            return f"{self.wrapped(sub())}[{self.pick('0', '-1', '1', '5', repr('a'), repr('items'), repr('role'), sub())}]"
        if kind == 7:
            bound = lambda: self.pick("", "", "0", "1", "-1", "2", "-2", "10", "-10", "none")
            step = self.pick("", "", ":", ":2", ":-1", ":-2", ":1")
            return f"{self.wrapped(sub())}[{bound()}:{bound()}{step}]"
        if kind == 8:
            return f"({sub()}) if {sub()} else {sub()}" if self.random.random() < 0.8 else f"(({sub()}) if {sub()})"
        if kind == 9:
            return f"{self.wrapped(sub())} is {self.pick('', 'not ')}{self.random.choice(TESTS)}"
        if kind == 10:
            return f"{sub()} {self.pick('and', 'or')} {sub()}"
        if kind == 11:
            return f"(not {sub()})"  # behind an operator Jinja takes a bare `not` for a name
        if kind == 12:
            return f"{self.wrapped(sub())} {self.pick('==', '!=', '<', '<=', '>', '>=', 'in', 'not in')} {self.wrapped(sub())}"
        if kind == 13:
            return f"[{sub()}, {sub()}]" if self.random.random() < 0.5 else "{'k': " + sub() + ", 'j': " + sub() + "}"
        return f"{self.wrapped(sub())} {self.pick('+', '-', '*', '/', '//', '%', '~', '~', '+', '**')} {self.wrapped(sub())}"

    def wrapped(self, text):
        return text if self.random.random() < 0.3 else f"({text})"

    def tag(self, body):
        return "{%" + self.pick("", "", "-", "+") + " " + body + " " + self.pick("", "", "-", "+") + "%}"

    def space(self):
        return self.pick("", " ", "\n", "  \n  ", "x", "\n\n", "\t", " text ", "\r\n")

    def block(self, depth):
        out = self.space()
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.randrange(9) if depth > 0 else 0
            if kind < 3:
                out += "{{" + self.pick("", "-") + " " + self.expression(2) + " " + self.pick("", "-") + "}}"
            elif kind == 3:
                out += self.tag("if " + self.expression(1)) + self.block(depth - 1)
                if self.random.random() < 0.5:
                    out += self.tag("elif " + self.expression(1)) + self.block(depth - 1)
                if self.random.random() < 0.5:
                    out += self.tag("else") + self.block(depth - 1)
                out += self.tag("endif")
            elif kind == 4:
                target, items = self.pick(("x", "l"), ("x", "w"), ("k, v", "d.items()"), ("x", "m"), ("x", f"({self.expression(1)})"), ("x", "range(3)"))
                out += self.tag(f"for {target} in {items}" + self.pick("", "", " if loop is undefined", " if x is string"))
                out += self.block(depth - 1) + "{{ " + self.pick("loop.index", "loop.last", "loop.revindex0", "loop.length", "loop.previtem", "x", "k ~ v", "loop.cycle('a', 'b')", "loop.first and loop.nextitem") + " }}"
                if self.random.random() < 0.3:
                    out += self.tag("if " + self.expression(1)) + self.tag(self.pick("break", "continue")) + self.tag("endif")
                if self.random.random() < 0.3:
                    out += self.tag("else") + self.block(depth - 1)
                out += self.tag("endfor")
            elif kind == 5:
                name = self.pick("x", "y")
                out += self.tag(f"set {name} = {self.expression(2)}") + "{{ " + name + " }}"
            elif kind == 6:
                name = self.pick("x", "y")
                out += self.tag(f"set {name}" + self.pick("", " | upper", " | trim | replace('x', 'y')")) + self.block(depth - 1) + self.tag("endset") + "{{ " + name + " }}"
            elif kind == 7:
                name = self.pick("f1", "f2")
                out += self.tag(f"macro {name}(p, q={self.expression(0)})") + "{{ p }}" + self.block(depth - 1) + "{{ q }}{{ x }}" + self.tag("endmacro")
                out += "{{ " + name + self.pick("()", "(1)", f"({self.expression(1)})", "(q=2)", "(1, 2)", "(*[1, 2])", "(**{'p': 3})", "(1, p=2)") + " }}"
            else:
                out += self.pick("{# note #}", "{#- note -#}\n", "  {# x #}\n", "{% set ns = namespace(v=1) %}{% set ns.v = ns.v + 1 %}{{ ns.v }}", "{% raw %}{{ x }}{% endraw %}\n", "  {%- raw -%}  {% if %} {%- endraw %}\n",
                                 "{% filter upper %}abc{{ s }}{% endfilter %}", "{% generation %}g{% set x = 9 %}{% endgeneration %}{{ x }}", "{% macro c(a) %}<{{ caller(a) }}>{% endmacro %}{% call(v) c(4) %}{{ v }}{{ s }}{% endcall %}")
            out += self.space()
        return out


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    env = environment(True, optimized=False)  # constants are folded by rules of their own
    warnings.simplefilter("ignore")
    same = errors = refused = differing = 0
    print(f"seed {seed}")
    texts = []
    for number in range(count):
        writer = Writer(f"{seed} {number}")
        texts.append(writer.block(2) if writer.random.random() < 0.4 else "{{ " + writer.expression(3) + " }}")
    answers = ask(sys.argv[1], [{"template": text, "variables": VARIABLES} for text in texts])
    for number, (text, ours) in enumerate(zip(texts, answers, strict=True)):
        try:
            theirs, why = env.from_string(text).render(tools=None, documents=None, add_generation_prompt=False, **json.loads(json.dumps(VARIABLES))), ""
        except Exception as error:  # any error of a template is an answer
            theirs, why = None, f"{type(error).__name__}: {error}"
        if ours.get("code") in ("unsupported", "limit") or "No filter named" in why or "a slice of" in ours.get("error", ""):
            refused += 1
        elif ours.get("text") == theirs:
            same += theirs is not None
            errors += theirs is None
        elif theirs is not None and any(sign in theirs.lower() for sign in (" object ", " of str object", "dict_items(", "dict_keys(", "dict_values(", "range(")):
            refused += 1  # what Python prints of values that have no text of their own
        else:
            differing += 1
            print(f"{number}: {text!r}\n  ours   {ours.get('error') or ours['text']!r}\n  jinja  {why or repr(theirs)}")
    print(f"{same} equal, {errors} errors in both, {refused} refused here, {differing} different")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
