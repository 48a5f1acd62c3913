"""Chat templates: Jinja from a foreign file, rendered in a process that cannot take long or much memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from multihead.text.worker import LimitedWorker, LimitError

SECONDS = 2.5  # of computing for one text; public templates take a thousandth
SIGNS = ("<|system|>", "<|user|>", "<|assistant|>")  # of the roles, in `default_template`
Messages = Sequence[Mapping[str, Any]]
_RENDERER = LimitedWorker("multihead.text.template_worker")


def render(template: str, messages: Messages, **values: Any) -> str:
    """The messages as one text, control tokens spelled out, as the model was trained on."""
    try:
        return str(_RENDERER.ask({"template": template, "values": {"messages": list(messages), **values}}, SECONDS))
    except LimitError as error:
        raise ValueError(f"the chat template {error} for these messages; use another chat template") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the chat template refuses these messages: {error}; check roles and order") from None


def mark_control_tokens(messages: Messages, control: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """The messages with control tokens in their texts broken by a mark, and the mark ("" if none was needed).

    The mark is a character that no message holds; taking it out again gives the user's text back.
    """
    everything = json.dumps(list(messages), ensure_ascii=False)
    mark = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in everything)

    def break_tokens(value: Any) -> Any:
        if isinstance(value, str):
            for token in control:
                value = value.replace(token, token[0] + mark + token[1:])
            return value
        if isinstance(value, Mapping):
            return {key: break_tokens(item) for key, item in value.items()}
        return [break_tokens(item) for item in value] if isinstance(value, list | tuple) else value

    changed = [break_tokens(message) for message in messages]
    return changed, mark if changed != [dict(message) for message in messages] else ""


def default_template(first: str, last: str) -> str:
    """For a model without one: a role's sign, what was said, and the token that ends a text, message by message."""
    said = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}" + last + "{% endfor %}"
    return first + said + "{% if add_generation_prompt %}<|assistant|>{% endif %}"


def answer_spans(chat: Callable[[Messages, bool], str], messages: Messages) -> tuple[str, list[tuple[int, int]]]:
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
