#!/usr/bin/env python3
"""Compares chat templates as this project renders them with Jinja itself, set up as transformers does.

usage: jinja.py [--mutable] RENDERER [TEMPLATE | FOLDER]...
       jinja.py --render < QUESTIONS

RENDERER is the program render_chat_template of the build. Without templates those beside this file are taken. Each is rendered for every
conversation of conversations.json, with and without tools, in several variants. Prints the differences and a count; exits 1 if there are any,
77 if Jinja is not installed. --mutable allows list.append and the like, which transformers forbids and this project has. --render answers
questions of the form that the renderer takes, one a line, as Jinja does.
"""
import datetime
import json
import subprocess
import sys
from pathlib import Path

try:
    import jinja2
    import jinja2.ext
    import jinja2.sandbox
except ImportError:
    print("skipped: the Python package jinja2 is not installed")
    sys.exit(77)

HERE = Path(__file__).resolve().parent
NOW = 1752148800  # 10 July 2025, 12:00


class Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant says; it renders its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def environment(mutable, **options):
    kind = jinja2.sandbox.SandboxedEnvironment if mutable else jinja2.sandbox.ImmutableSandboxedEnvironment

    class Environment(kind):
        """Refuses powers that Python would compute for minutes."""

        intercepted_binops = frozenset(["**"])

        def call_binop(self, context, operator, left, right):
            if isinstance(left, int) and isinstance(right, int) and abs(left) > 1 and left.bit_length() * right > 4096:
                raise OverflowError("the power is too large")
            return super().call_binop(context, operator, left, right)

    env = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols], **options)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.utcfromtimestamp(NOW).strftime(format)
    return env


def ask(renderer, questions):
    """What the renderer answers."""
    lines = "".join(json.dumps(question) + "\n" for question in questions)
    out = subprocess.run([renderer], input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout
    return [json.loads(line) for line in out.decode("utf-8").split("\n")[:-1]]


def cases(data):
    for name, messages in data["conversations"].items():
        for with_tools in (False, True):
            for number, variant in enumerate(data["variants"]):
                variables = {"messages": messages, "tools": None, "documents": None, **variant}
                if with_tools:
                    variables["tools"] = data["tools"]
                yield f"{name}{' + tools' if with_tools else ''}, variant {number}", variables


def render(question):
    """What the renderer is asked, answered by Jinja."""
    env = environment(False)
    now = question.get("now", 0)
    env.globals["strftime_now"] = lambda format: datetime.datetime.utcfromtimestamp(now).strftime(format)
    variables = {"tools": None, "documents": None, "add_generation_prompt": False, **question["variables"], **question.get("special_tokens", {})}
    try:
        return {"text": env.from_string(question["template"]).render(variables)}
    except Exception as error:  # any error of a template is an answer
        return {"error": f"{type(error).__name__}: {error}"}


def templates(paths):
    for path in paths:
        yield from sorted(path.rglob("*.jinja")) if path.is_dir() else [path]


def main():
    arguments = sys.argv[1:]
    if arguments == ["--render"]:
        for line in sys.stdin:
            print(json.dumps(render(json.loads(line))))
        return
    mutable = "--mutable" in arguments
    arguments = [a for a in arguments if a != "--mutable"]
    data = json.loads((HERE / "conversations.json").read_text(encoding="utf-8"))
    env = environment(mutable)
    same = errors = differing = 0
    for path in templates([Path(a) for a in arguments[1:]] or [HERE / "templates"]):
        text = path.read_bytes().decode("utf-8")
        try:
            template = env.from_string(text)
        except jinja2.TemplateError as error:
            template = error
        named = list(cases(data))
        ours_all = ask(arguments[0], [{"template": text, "variables": variables, "special_tokens": data["special_tokens"], "now": NOW} for _, variables in named])
        for (name, variables), ours in zip(named, ours_all, strict=True):
            try:
                if isinstance(template, Exception):
                    raise template
                # The variables are read back so that a template that changes them does not change those of the next case.
                theirs, why = template.render({**json.loads(json.dumps(variables)), **data["special_tokens"]}), ""
            except Exception as error:  # any error of a template is an answer
                theirs, why = None, f"{type(error).__name__}: {error}"
            refused = ours.get("code") == "unsupported" and not why.startswith(("TemplateRuntimeError: No filter", "SecurityError"))
            if ours.get("text") == theirs and not refused:
                same += theirs is not None
                errors += theirs is None
                continue
            differing += 1
            print(f"{path.name}: {name}:\n  ours   {ours.get('error') or json.dumps(ours['text'])}\n  jinja  {why or json.dumps(theirs)}")
    print(f"{same} equal, {errors} errors in both, {differing} different")
    sys.exit(1 if differing else 0)


if __name__ == "__main__":
    main()
