"""Jinja set up as Hugging Face's transformers does for chat templates. Needs the package jinja2."""

import datetime
import json

import jinja2
import jinja2.ext
import jinja2.sandbox

DATE = datetime.datetime(2024, 7, 26)  # the one that evalrun gives to every template


class Generation(jinja2.ext.Extension):
    """{% generation %}: its text is printed as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = DATE.strftime
    return env


def render(template, variables):
    """The text, or None and the reason when the template refuses."""
    try:
        return environment().from_string(template).render(**variables), ""
    except Exception as error:  # whatever Python raises is a refusal
        return None, f"{type(error).__name__}: {error}"
