"""Chat templates: Jinja from a foreign file, in a sandbox that cannot reach Python; its output is bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

LONGEST = 4_000_000  # characters
SIGNS = ("<|system|>", "<|user|>", "<|assistant|>")  # of the roles, in `default_template`
Messages = Sequence[Mapping[str, Any]]


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"*", "**", "%"})

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """'a' * 10**9 and 9**9**9 are bombs; templates need numbers of everyday size."""
        for a, b in ((left, right), (right, left)):
            sized = operator == "*" and isinstance(a, str | list | tuple) and isinstance(b, int)
            if sized and len(a) * b > LONGEST:
                raise ValueError("a text or list repeated too often")
        if operator == "**" and not (abs(left) < 1e6 and abs(right) < 64):
            raise ValueError("a power too large")
        if operator == "%" and isinstance(left, str):
            raise ValueError("% on text; use ~ to join")  # '%999999999d' % 1
        return super().call_binop(context, operator, left, right)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    """Not Jinja's own, which escapes < and > for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


@lru_cache(maxsize=8)
def _compiled(template: str) -> Template:
    """Some milliseconds each, and every conversation of a training set is rendered several times."""
    sandbox = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    sandbox.filters["tojson"] = _tojson
    sandbox.globals["raise_exception"] = _refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return sandbox.from_string(template)


def render(template: str, messages: Messages, **values: Any) -> str:
    """The messages as one text, control tokens spelled out, as the model was trained on."""
    text: list[str] = []
    length = 0
    try:
        for part in _compiled(template).generate(messages=list(messages), **values):
            length += len(part)
            if length > LONGEST:
                raise ValueError(f"it writes more than {LONGEST:,} characters")
            text.append(part)
    except (
        TemplateError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
        RecursionError,
    ) as error:
        raise ValueError(f"the chat template refuses these messages: {error}; check roles and order") from None
    return "".join(text)


def marked(messages: Messages, control: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """The messages with control tokens in their texts broken by a mark, and the mark ("" if none was needed).

    The mark is a character that no message holds; taking it out again gives the user's text back.
    """
    everything = json.dumps(list(messages), ensure_ascii=False)
    mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in everything)

    def broken(value: Any) -> Any:
        if isinstance(value, str):
            for token in control:
                value = value.replace(token, token[0] + mark + token[1:])
            return value
        if isinstance(value, Mapping):
            return {key: broken(item) for key, item in value.items()}
        return [broken(item) for item in value] if isinstance(value, list | tuple) else value

    changed = [broken(message) for message in messages]
    return changed, mark if changed != [dict(message) for message in messages] else ""


def default_template(first: str, last: str) -> str:
    """For a model without one: a role's sign, what was said, and the token that ends a text, message by message."""
    said = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}" + last + "{% endfor %}"
    return first + said + "{% if add_generation_prompt %}<|assistant|>{% endif %}"


def answers(chat: Callable[[Messages, bool], str], messages: Messages) -> tuple[str, list[tuple[int, int]]]:
    """The whole conversation as one text, and where in it the assistant's turns begin and end.

    chat: messages -> text, with what asks for an answer behind them, or without. A turn begins where the model would be
    asked for it; so the text has to grow from message to message, and nothing of it may change.
    """
    whole, found = chat(messages, False), []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = chat(messages[:number], True), chat(messages[: number + 1], False)
        if not after.startswith(before):
            broken = "is asked for with a text that does not stand before it in the whole conversation"
        elif not whole.startswith(after):
            broken = "is written otherwise once more messages follow"
        else:
            found.append((len(before), len(after)))
            continue
        raise ValueError(
            f"message {number + 1} (assistant) {broken}: with this chat template nobody can tell which tokens are the "
            "assistant's; give the model a chat_template.jinja that only adds, or end conversations where it holds"
        )
    return whole, found
