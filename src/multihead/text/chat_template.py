"""Chat templates: untrusted Jinja, rendered in a process with limits on time and memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from multihead.text.worker import LimitedWorker, LimitError

SECONDS = 2.5  # of computing for one text; public templates take a thousandth
SIGNS = ("<|system|>", "<|user|>", "<|assistant|>")  # of `default_template`
Messages = Sequence[Mapping[str, Any]]
_RENDERER = LimitedWorker("multihead.text.template_worker")


def render(template: str, messages: Messages, **values: Any) -> str:
    """Return the messages as one text, control tokens spelled out, as the model was trained on."""
    try:
        return str(_RENDERER.ask({"template": template, "values": {"messages": list(messages), **values}}, SECONDS))
    except LimitError as error:
        raise ValueError(f"the chat template {error} for these messages; use another chat template") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"the chat template rejects these messages: {error}; check roles and order") from None


def mark_control_tokens(messages: Messages, control: Sequence[str]) -> tuple[list[dict[str, Any]], str]:
    """Return the messages with control tokens in their texts broken by a mark, and the mark ("" if none was needed).

    The mark is a character that no message holds; removing it restores the user's text.
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
    """Return a template for a model without one: role token, content and end-of-text token of each message."""
    turns = "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}" + last + "{% endfor %}"
    return first + turns + "{% if add_generation_prompt %}<|assistant|>{% endif %}"


def answer_spans(chat: Callable[[Messages, bool], str], messages: Messages) -> tuple[str, list[tuple[int, int]]]:
    """Return the whole conversation as one text, and the spans of the assistant's turns in it.

    chat: a function of messages and whether to append the generation prompt, which returns the text. A turn begins
    where the model would be prompted for it; so the text may only grow from message to message.
    """
    text, spans = chat(messages, False), []
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        before, after = chat(messages[:number], True), chat(messages[: number + 1], False)
        if not after.startswith(before):
            broken = "has a prompt that does not precede it in the full conversation"
        elif not text.startswith(after):
            broken = "changes when more messages follow"
        else:
            spans.append((len(before), len(after)))
            continue
        raise ValueError(
            f"message {number + 1} (assistant) {broken}: this chat template does not show which tokens are the "
            "assistant's; use a chat_template.jinja that only appends, or end conversations there"
        )
    return text, spans
