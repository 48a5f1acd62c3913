"""The process that renders chat templates in Jinja's sandbox, which alone limits neither time nor memory."""

from __future__ import annotations

import json
from datetime import datetime
from functools import lru_cache
from typing import Any

import jinja2.debug  # noqa: F401  # Jinja imports it at the first error, when there may be no memory left
from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from multihead.text.worker import serve

LONGEST = 4_000_000  # characters


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Reject operations with huge results, such as 'a' * 10**9 and 9**9**9."""
        for a, b in ((left, right), (right, left)):
            sized = operator == "*" and isinstance(a, str | list | tuple) and isinstance(b, int)
            if sized and len(a) * b > LONGEST:
                raise ValueError("a text or list repeated too often")
        if operator == "**" and not (abs(left) < 1e6 and abs(right) < 64):
            raise ValueError("a power too large")
        if operator == "%" and isinstance(left, str):
            raise ValueError("% on text; use ~ to join")  # '%999999999d' % 1
        return super().call_binop(context, operator, left, right)


def _raise_error(message: str) -> None:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Return JSON without Jinja's escaping of < and > for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


@lru_cache(maxsize=8)
def _compile(template: str) -> Template:
    """Return a compiled template, cached: compiling takes milliseconds, and a training set renders it many times."""
    sandbox = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    sandbox.filters["tojson"] = _tojson
    sandbox.globals["raise_exception"] = _raise_error
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox.from_string(template)


def render_template(request: dict[str, Any]) -> str:
    """Render a request: a template, and the values that it sees by name."""
    text: list[str] = []
    length = 0
    for part in _compile(request["template"]).generate(**request["values"]):
        length += len(part)
        if length > LONGEST:
            raise ValueError(f"it writes more than {LONGEST:,} characters")
        text.append(part)
    return "".join(text)


if __name__ == "__main__":
    serve(render_template)
