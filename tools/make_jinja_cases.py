#!/usr/bin/env python3
"""Writes tests/data/jinja_cases.json: chat templates, what they are rendered with, and what transformers makes of them.

usage: make_jinja_cases.py

What is expected is what Jinja2 gives, set up as transformers does (tests/oracle/jinja.py); it must be installed. Where
node and tests/oracle's npm packages are at hand, each case also says what @huggingface/jinja makes of it if that is
something else: `elsewhere`. Jinja2 rules then.
"""
import json
import subprocess
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/oracle"))
from jinja import NOW, render  # exits with 77 without Jinja

USER = [{"role": "user", "content": "Hi"}]
TWO = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]

# (what is looked at, template, variables)
FEATURES = [
    # ---- white space
    ("trim_blocks drops the line break after a tag", "a\n{% if true %}\nb\n{% endif %}\nc\n", {}),
    ("lstrip_blocks drops the indent before a tag", "a\n   {% if true %}b{% endif %}\n", {}),
    ("lstrip_blocks leaves what follows text", "x {% if true %}b{% endif %} y", {}),
    ("variables keep their line", "a\n  {{ 1 }}\n  b", {}),
    ("minus takes all space", "a \n\n {%- if true -%} \n b \n {%- endif -%} \n c", {}),
    ("plus keeps space", "a\n  {%+ if true +%}\nb{% endif %}", {}),
    ("comments are blocks for white space", "a\n  {# note #}\nb{#- note -#} c", {}),
    ("one line break at the end is dropped", "a\n\n", {}),
    ("carriage returns are line breaks", "a\r\nb\rc\r\n", {}),
    ("raw blocks", "{% raw %}{{ x }}{% if %}{# c #}{% endraw %}", {}),
    ("raw blocks with minus", "a {%- raw -%} {{ x }} {%- endraw -%} b", {}),
    ("braces that open nothing", "{ { } } {a} %} }}", {}),
    # ---- variables and attributes
    ("attribute and item", "{{ m.role }}{{ m['role'] }}{{ m.get('role') }}{{ m.get('no', 'x') }}", {"m": {"role": "r"}}),
    ("a member hides no method when called", "{{ m.items() | list }}", {"m": {"a": 1}}),
    ("a subscript prefers members", "{{ m['items'] }}", {"m": {"items": 7}}),
    ("undefined prints as nothing", "[{{ nothing }}][{{ m.nothing }}]", {"m": {}}),
    ("an attribute of what is undefined is an error", "{{ nothing.role }}", {}),
    ("none prints as None", "{{ none }} {{ x }}", {"x": None}),
    ("booleans print as in Python", "{{ true }} {{ False }} {{ x }}", {"x": True}),
    ("is defined", "{{ a is defined }}{{ b is defined }}{{ m.x is defined }}{{ b is not defined }}", {"a": None, "m": {"x": 0}}),
    ("defined by set in a branch", "{% if false %}{% set a = 1 %}{% endif %}{{ a is defined }}", {}),
    ("negative index", "{{ l[-1] }}{{ l[-5] is defined }}{{ 'abc'[-1] }}", {"l": [1, 2]}),
    ("a tuple needs no parentheses", "{% set a, b = 1, 2 %}{{ b }}{{ a }}", {}),
    # ---- slices
    ("slices of lists", "{{ l[1:] }}{{ l[:-1] }}{{ l[::2] }}{{ l[::-1] }}{{ l[5:] }}", {"l": [1, 2, 3, 4]}),
    ("slices of strings count characters", "{{ s[1:3] }}|{{ s[::-1] }}|{{ s[-2:] }}", {"s": "aß你😀z"}),
    ("a slice with step 0 is an error", "{{ [1][::0] }}", {}),
    # ---- operators
    ("arithmetic", "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 1 + 2 * 3 - 4 }}", {}),
    ("division by zero is an error", "{{ 1 // 0 }}", {}),
    ("plus joins strings and lists", "{{ 'a' + 'b' }}{{ [1] + [2] }}{{ 'ab' * 2 }}", {}),
    ("string plus number is an error", "{{ 'a' + 1 }}", {}),
    ("tilde joins anything", "{{ 1 ~ none ~ true ~ 'x' ~ 2.0 ~ [1] }}", {}),
    ("comparisons chain", "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}", {}),
    ("in", "{{ 'b' in 'abc' }}{{ 2 in [1] }}{{ 'k' in m }}{{ 'x' not in m }}", {"m": {"k": 0}}),
    ("in an undefined value", "{{ 'x' in nothing }}", {}),
    ("in None is an error", "{{ 'x' in none }}", {}),
    ("and, or give operands", "{{ '' or 'b' }}{{ 'a' and 'c' }}{{ not '' }}{{ 0 or none }}", {}),
    ("not binds weaker than in", "{{ not 1 in [2] }}{{ not (1 in [1]) }}", {}),
    ("inline if without else", "[{{ 'a' if false }}][{{ ('x' if false) is defined }}]", {}),
    ("inline ifs nest to the right", "{{ 1 if false else 2 if false else 3 }}", {}),
    ("equality of containers", "{{ [1, {'a': 2}] == [1.0, {'a': 2}] }}{{ {} == [] }}{{ (1,) == [1] }}", {}),
    ("filters bind tighter than operators", "{{ 'a' ~ 'b' | upper }}{{ -1 | abs }}", {}),
    ("adjacent strings are one", "{{ 'a' 'b' \"c\" }}", {}),
    ("escapes in strings", "{{ 'a\\n\\t\\\\\\'\\x41\\u00e4' }}", {}),
    ("numbers with underscores", "{{ 1_000 + 0x10 }}{{ 1.5e3 }}{{ 1e-7 }}", {}),
    # ---- statements
    ("if, elif, else", "{% for x in [1, 2, 3] %}{% if x == 1 %}a{% elif x == 2 %}b{% else %}c{% endif %}{% endfor %}", {}),
    ("loop variables", "{% for x in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}", {}),
    ("previtem, nextitem", "{% for x in [1, 2] %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{{ loop.nextitem }} {% endfor %}", {}),
    ("loop.cycle", "{% for x in range(4) %}{{ loop.cycle('a', 'b', 'c') }}{% endfor %}", {}),
    ("loop.changed", "{% for x in [1, 1, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", {}),
    ("loop.depth", "{% for x in [1] %}{% for y in [1] %}{{ loop.depth }}{{ loop.depth0 }}{% endfor %}{{ loop.depth }}{% endfor %}", {}),
    ("a loop's filter", "{% for x in range(6) if x is even %}{{ x }}{{ loop.length }}{% endfor %}", {}),
    ("a loop's else", "{% for x in [] %}a{% else %}none{% endfor %}{% for x in nothing %}{% else %}u{% endfor %}", {}),
    ("break and continue", "{% for x in range(9) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", {}),
    ("loops unpack", "{% for k, v in m.items() %}{{ k }}={{ v }} {% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a + b + c }}{% endfor %}", {"m": {"b": 1, "a": 2}}),
    ("a loop over a dict gives keys", "{% for k in m %}{{ k }}{% endfor %}", {"m": {"b": 1, "a": 2}}),
    ("a loop has its own scope", "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{% endfor %}{{ x }}", {}),
    ("an if has none", "{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}", {}),
    ("a namespace crosses scopes", "{% set ns = namespace(x=1, l=[]) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.x }}{{ ns.l }}", {}),
    ("a namespace of a dict", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{{ ns.c is defined }}", {}),
    ("set of a member of something else is an error", "{% set m.x = 1 %}", {"m": {}}),
    ("set blocks", "{% set x %}a{{ 1 }}\n{% endset %}[{{ x }}]{% set y | upper | trim %} q {% endset %}[{{ y }}]", {}),
    ("filter blocks", "{% filter upper | replace('A', 'b') %}xa{{ 'a' }}{% endfilter %}", {}),
    ("macros", "{% macro f(a, b='B', c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}|{{ f(1, c=2) }}|{{ f() }}", {}),
    ("a macro sees the template's variables", "{% set x = 1 %}{% macro f() %}{{ x }}{% endmacro %}{% set x = 2 %}{{ f() }}", {}),
    ("varargs, kwargs and caller", "{% macro f(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, 2, 3, k=4) }}", {}),
    ("too many arguments are an error", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", {}),
    ("recursive macros", "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", {}),
    ("call blocks", "{% macro f(t) %}<{{ t }}>{{ caller(7) }}</{{ t }}>{% endmacro %}{% call(x) f('b') %}{{ x }}!{% endcall %}", {}),
    ("generation marks", "a{% generation %}b{{ x }}{% endgeneration %}c", {"x": 1}),
    ("a body ends where it should", "{% if true %}a", {}),
    ("an unknown tag is an error", "{% frobnicate %}", {}),
    ("an unclosed expression is an error", "{{ 1", {}),
    # ---- tests
    ("types", "{% for x in [1, 1.5, 'a', none, true, [1], {'a': 1}] %}{{ x is number }}{{ x is integer }}{{ x is float }}{{ x is string }}{{ x is none }}{{ x is boolean }}{{ x is sequence }}{{ x is mapping }}{{ x is iterable }} {% endfor %}", {}),
    ("comparing tests", "{{ 1 is eq(1) }}{{ 2 is gt 1 }}{{ 3 is divisibleby(3) }}{{ 'a' is in(['a']) }}{{ none is sameas(none) }}{{ 'A' is upper }}{{ 'a' is lower }}", {}),
    ("is false for what is only empty", "{{ '' is false }}{{ false is false }}{{ 0 is false }}{{ true is true }}", {}),
    ("callable", "{{ range is callable }}{{ 'a' is callable }}", {}),
    ("an unknown test is an error", "{{ 1 is frob }}", {}),
    # ---- filters
    ("trim and strip", "[{{ ' a ' | trim }}][{{ 'xax' | trim('x') }}][{{ '\u00a0a\u3000' | trim }}][{{ 'xay'.strip('xy') }}]", {}),
    ("default", "{{ a | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | d('x') }}{{ none | d('x', boolean=true) }}", {}),
    ("join", "{{ [1, 'a', none] | join('-') }}{{ l | join(', ', attribute='n') }}{{ 'abc' | join('.') }}", {"l": [{"n": 1}, {"n": 2}]}),
    ("first, last, length", "{{ [1, 2] | first }}{{ 'ab' | last }}{{ {'a': 1} | length }}{{ 'äö' | count }}", {}),
    ("upper, lower, title, capitalize", "{{ 'hello wORLD-x' | upper }}{{ 'ÀB' | lower }}{{ 'hello wORLD-x it\\'s' | title }}{{ 'hELLO' | capitalize }}", {}),
    ("map", "{{ l | map(attribute='n') | list }}{{ ['a'] | map('upper') | list }}{{ l | map(attribute='q', default=0) | list }}", {"l": [{"n": 1}, {"n": 2}]}),
    ("select and reject", "{{ [0, 1, none, 2] | select | list }}{{ [1, 2, 3] | reject('odd') | list }}{{ [1, 2, 3] | select('>', 1) | list }}", {}),
    ("selectattr and rejectattr", "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | join }}{{ m | rejectattr('role', 'in', ['user', 'system']) | list | length }}{{ m | selectattr('tool_calls', 'defined') | list }}", {"m": TWO}),
    ("sort and unique", "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'a'] | sort }}{{ ['b', 'A', 'a'] | sort(case_sensitive=true) }}{{ [1, 2, 1] | unique | list }}{{ l | sort(attribute='n', reverse=true) }}", {"l": [{"n": 1}, {"n": 2}]}),
    ("dictsort and items", "{% for k, v in m | dictsort %}{{ k }}{{ v }}{% endfor %}{{ m | items | list }}", {"m": {"b": 1, "a": 2}}),
    ("reverse", "{{ 'abc' | reverse }}{{ [1, 2] | reverse | list }}", {}),
    ("replace", "{{ 'aaa' | replace('a', 'b', 2) }}{{ 'aXb'.replace('X', '') }}", {}),
    ("int, float, string, list", "{{ '12' | int + 1 }}{{ 'x' | int(7) }}{{ '1.5' | float }}{{ 3 | string ~ '' }}{{ 'ab' | list }}{{ '3.9' | int }}", {}),
    ("abs, round, min, max, sum", "{{ -2 | abs }}{{ 2.5 | round }}{{ 2.567 | round(2) }}{{ [2, 1] | min }}{{ [2, 1] | max }}{{ [1, 2] | sum }}", {}),
    ("indent", "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, first=true) }}", {}),
    ("batch and slice", "{{ [1, 2, 3] | batch(2) | list }}", {}),
    ("format", "{{ '%s: %05.1f %d%%' | format('a', 2.25, 3) }}{{ '%-4s|' % 'a' }}", {}),
    ("escape", "{{ '<a & \"b\">' | e }}", {}),
    ("an unknown filter is an error", "{{ 1 | frob }}", {}),
    # ---- JSON
    ("tojson keeps order and letters", "{{ x | tojson }}", {"x": {"b": [1, 2.0, 1e20, None, True], "a": "ü<&>'\"\\\n\u2028\x7f", "c": {}}}),
    ("tojson with indent", "{{ x | tojson(indent=2) }}", {"x": {"a": [1, {"b": []}], "c": {}}}),
    ("tojson with other options", "{{ x | tojson(ensure_ascii=true) }}{{ x | tojson(separators=(',', ':')) }}{{ x | tojson(sort_keys=true) }}", {"x": {"b": "ü😀", "a": 1}}),
    ("tojson of text", "{{ 'a\"b' | tojson }}{{ none | tojson }}{{ true | tojson }}", {}),
    ("tojson of an undefined value is an error", "{{ nothing | tojson }}", {}),
    ("repr of strings", "{{ ['a', \"it's\", 'say \"x\"', '\\n\\t\\\\', 'ü\u200b'] }}", {}),
    ("repr of numbers", "{{ [1.0, 1e16, 1e15, 1e-5, 0.1, -0.0, 123456789012345678901234567890] }}", {}),
    # ---- methods
    ("split", "{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a-b-c'.split('-', 1) }}{{ 'a-b-c'.rsplit('-', 1) }}{{ 'x'.split('y')[-1] }}", {}),
    ("strip methods", "[{{ '\\n a \\n'.strip() }}][{{ 'aab'.lstrip('a') }}][{{ 'abb'.rstrip('b') }}][{{ 'ab'.removeprefix('a') }}]", {}),
    ("startswith and endswith", "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('b', 1) }}", {}),
    ("find, count, index", "{{ 'abcabc'.find('c') }}{{ 'abc'.rfind('z') }}{{ 'aaa'.count('aa') }}{{ [1, 2].index(2) }}", {}),
    ("case methods", "{{ 'aB'.upper() }}{{ 'aB'.lower() }}{{ 'ab cd'.title() }}{{ 'ab'.capitalize() }}{{ 'ß'.upper() }}", {}),
    ("is methods", "{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ 'A'.isupper() }}{{ ''.isalpha() }}", {}),
    ("join and splitlines", "{{ '-'.join(['a', 'b']) }}{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a=b'.partition('=') }}", {}),
    ("format method", "{{ '{} {1}'.format(1, 2) if false else '{0} {1} {x}'.format(1, 2, x=3) }}", {}),
    ("dict methods", "{{ m.keys() | list }}{{ m.values() | list }}{{ m.get('z') }}{{ 'a' in m.keys() }}", {"m": {"a": 1}}),
    ("a method that is not there", "{{ 'a'.frob() }}", {}),
    # ---- globals
    ("range", "{{ range(3) | list }}{{ range(1, 9, 3) | list }}{{ range(3, 0, -1) | list }}{{ range(3) | length }}", {}),
    ("dict()", "{{ dict(a=1, b='x') }}{{ dict({'a': 1}, b=2) }}", {}),
    ("raise_exception", "a{{ raise_exception('no') }}b", {}),
    ("strftime_now", "{{ strftime_now('%d %B %Y, %H:%M:%S %A %b %a %j %%') }}", {}),
    ("joiner", "{% set c = joiner(', ') %}{{ c() }}a{{ c() }}b", {}),
    # ---- as the families use them
    ("messages are walked backwards", "{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }} {% endfor %}", {"messages": TWO}),
    ("tools are None unless given", "{{ tools is none }}{{ tools is defined }}{{ documents }}{{ 'y' if tools else 'n' }}", {}),
    ("the generation prompt is off unless asked for", "{{ add_generation_prompt }}{{ add_generation_prompt is defined }}", {}),
    ("special tokens are variables", "{{ bos_token }}{{ eos_token }}{{ unk_token is defined }}", {}),
    ("thoughts are cut off", "{{ c.split('</think>')[-1].lstrip('\\n') }}|{{ c.split('</think>')[0].split('<think>')[-1].strip('\\n') }}", {"c": "<think>\nT\n</think>\n\nA"}),
    ("content of parts", "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('') }}{% endif %}{% endfor %}",
     {"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}, {"type": "image"}]}]}),
    ("arguments of calls", "{% for t in calls %}{{ t.function.arguments | tojson if t.function.arguments is mapping else t.function.arguments }}{% endfor %}",
     {"calls": [{"function": {"arguments": {"a": 1}}}, {"function": {"arguments": "{\"b\": 2}"}}]}),
    ("a message compared with another", "{{ messages[0] == messages | first }}{{ messages[0] == messages[1] }}", {"messages": TWO}),
]

# Conversations and variants (see tests/oracle/conversations.json) that each family's template is rendered with.
CONVERSATIONS = ["user", "system_turns", "space", "unicode", "forged", "thought", "parts", "tool_call", "tool_call_id9", "tool_call_text", "odd_order", "none"]
SETTINGS = [(False, 0), (True, 0), (False, 2), (True, 3)]


def elsewhere(questions):
    """What @huggingface/jinja answers, None if it is not here."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    try:
        done = subprocess.run(["node", str(ROOT / "tests/oracle/jinja.mjs"), "--render"], input=lines.encode(), stdout=subprocess.PIPE)
    except FileNotFoundError:
        return None
    return [json.loads(line) for line in done.stdout.decode().split("\n")[:-1]] if done.returncode == 0 else None


def main():
    warnings.simplefilter("ignore")
    data = json.loads((ROOT / "tests/oracle/conversations.json").read_text(encoding="utf-8"))
    tokens = data["special_tokens"]
    cases, questions = [], []
    for name, template, variables in FEATURES:
        cases.append({"name": name, "template": template, "variables": variables})
        questions.append({"template": template, "variables": variables, "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"}, "now": NOW})
    for path in sorted((ROOT / "tests/oracle/templates").glob("*.jinja")):
        text = path.read_text(encoding="utf-8")
        for conversation in CONVERSATIONS:
            for with_tools, variant in SETTINGS:
                cases.append({"name": f"{path.stem}: {conversation}{' + tools' if with_tools else ''}, variant {variant}", "file": path.name, "conversation": conversation, "tools": with_tools, "variant": variant})
                variables = {"messages": data["conversations"][conversation], "tools": data["tools"] if with_tools else None, **data["variants"][variant]}
                questions.append({"template": text, "variables": variables, "special_tokens": tokens, "now": NOW})
    others = elsewhere(questions)
    disagreements = 0
    for i, (case, question) in enumerate(zip(cases, questions, strict=True)):
        answer = render(question)
        if "text" in answer:
            case["expected"] = answer["text"]
        else:
            case["error"] = answer["error"]
        if others is not None and others[i].get("text") != answer.get("text"):
            disagreements += 1
            # Of the families' long texts only that they differ.
            case["elsewhere"] = "other" if "file" in case else others[i]
    out = {"about": "Written by tools/make_jinja_cases.py: `expected` is what Jinja2 gives as transformers sets it up, `error` that it fails. `elsewhere` is what "
                    "@huggingface/jinja 0.5.11 gives where it disagrees; transformers' behaviour rules.",
           "now": NOW, "cases": cases}
    lines = ",\n".join("    " + json.dumps(case, ensure_ascii=False) for case in cases)
    head = json.dumps({k: v for k, v in out.items() if k != "cases"}, ensure_ascii=False)[1:-1]
    (ROOT / "tests/data/jinja_cases.json").write_text("{\n  " + head + ",\n  \"cases\": [\n" + lines + "\n  ]\n}\n", encoding="utf-8")
    print(f"{len(cases)} cases, {sum('error' in case for case in cases)} of them errors; the references disagree on {disagreements if others is not None else 'an unknown number'}")


if __name__ == "__main__":
    main()
