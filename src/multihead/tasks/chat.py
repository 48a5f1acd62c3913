"""Conversations as training examples: tokens from the model's chat template, and which of them have a loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray

from multihead.tasks.task import EmptyInput, Window
from multihead.text.chat_template import SIGNS, Messages, answer_spans, default_template, mark_control_tokens
from multihead.text.tokenizer import Tokenizer

CONFIG = "tokenizer_config.json"
NEW = len(SIGNS)  # tokens that `add_role_tokens` adds


def message_of(message: Any, where: str) -> dict[str, Any]:
    """Return a message as chat templates expect it: content as one string, though the input may have parts (type:
    text)."""
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str) or not message["role"]:
        raise ValueError(f"{where}: a message must be {{role: …, content: …}}")
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    written = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    texts = [part["text"] for part in written if isinstance(part.get("text"), str)]
    if parts and len(texts) == len(parts):
        content = "".join(texts)
    if not isinstance(content, str):  # a template would render None or a list literally
        raise ValueError(f"{where} ({message['role']}): content must be text, not {str(content)[:40]}")
    if not content.strip() and "tool_calls" not in message:
        raise EmptyInput(f"{where} ({message['role']}): empty content")
    return {**message, "content": content}


def encode_conversation(
    tokenizer: Tokenizer, messages: Messages, stop: Sequence[int], all_turns: bool, size: int
) -> Window:
    """Return tokens; counted [T]: 1 where a token has a loss; cut: number of tokens truncated at the end.

    The loss covers all tokens of an assistant's turn that the model has to generate: from the end of the generation
    prompt to the stop token. all_turns: include the other turns.
    """
    safe, mark = mark_control_tokens(messages, list(tokenizer.control))
    with tokenizer.name_template():
        text, turns = answer_spans(tokenizer.chat, safe)
    ids, starts = _tokens(tokenizer, text, mark, [start for start, _ in turns])
    counted = np.full(len(ids), all_turns, dtype=np.int8)
    for start, end in turns:
        inside = np.flatnonzero((starts >= start) & (starts < end))
        last = inside[np.isin(np.asarray(ids)[inside], list(stop))][-1:]
        if not len(last):
            origin = f"{tokenizer.template_file}: " if tokenizer.template_file else ""
            raise ValueError(
                f"{origin}the chat template ends an assistant's turn without a stop token "
                f"({', '.join(tokenizer.tokens(stop))}); set the token it ends with as eos_token_id in the model's "
                "generation_config.json"
            )
        counted[inside[inside <= last]] = 1
    most = size + 1  # the last token is only a label
    return {
        "tokens": np.array(ids[:most], dtype=np.int32),
        "counted": counted[:most],
        "cut": np.array(max(0, len(ids) - most), dtype=np.int32),
    }


def _tokens(tokenizer: Tokenizer, text: str, mark: str, borders: Sequence[int]) -> tuple[list[int], NDArray[Any]]:
    """Return the tokens and the start of each. No token spans the beginning of an answer, where generation starts."""
    ids, places = tokenizer.encode_marked(text, mark)
    starts, ends = np.array(places, dtype=np.int64).reshape(-1, 2).T
    if not any(((starts < border) & (ends > border)).any() for border in borders):
        return ids, starts
    parts, edges = [], [0, *borders, len(text)]
    ids = []
    for start, end in pairwise(edges):
        more, places = tokenizer.encode_marked(text[start:end], mark)
        ids += more
        parts.append(np.array([place for place, _ in places], dtype=np.int64) + start)
    return ids, np.concatenate(parts)


def add_role_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Return a trained tokenizer with the role markers added as tokens."""
    tokenizer.inner.add_special_tokens([tokenizers.AddedToken(sign, normalized=False, special=True) for sign in SIGNS])
    return Tokenizer(
        tokenizer.inner,
        tokenizer.named,
        template=tokenizer.template,
        template_file=tokenizer.template_file,
        files=tokenizer.files,
    )


def add_default_template(tokenizer: Tokenizer, first: int, last: int) -> None:
    """Give a tokenizer without a chat template the default one, which is saved with it. first, last: the tokens that
    begin and end a text. Role markers that are not in the vocabulary are spelled out."""
    tokenizer.template, tokenizer.template_file = default_template(*tokenizer.tokens([first, last])), ""
    if CONFIG in tokenizer.files:  # saved unchanged
        tokenizer.files["chat_template.jinja"] = tokenizer.template.encode()
