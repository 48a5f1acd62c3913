"""A conversation as an example: its tokens by the model's chat template, and which of them are learnt."""

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


def message_of(given: Any, where: str) -> dict[str, Any]:
    """A message as chat templates take it: its content one text, though it may come in parts (type: text)."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str) or not given["role"]:
        raise ValueError(f"{where}: a message is {{role: …, content: …}}")
    content = given.get("content")
    parts = content if isinstance(content, list) else []
    written = [part for part in parts if isinstance(part, Mapping) and part.get("type") == "text"]
    texts = [part["text"] for part in written if isinstance(part.get("text"), str)]
    if parts and len(texts) == len(parts):
        content = "".join(texts)
    if not isinstance(content, str):  # a template would spell it out: None, or a list's brackets
        raise ValueError(f"{where} ({given['role']}): its content is {str(content)[:40]}, and no text")
    if not content.strip() and "tool_calls" not in given:
        raise EmptyInput(f"{where} ({given['role']}): empty content")
    return {**given, "content": content}


def encode_conversation(
    tokenizer: Tokenizer, messages: Messages, stop: Sequence[int], everyone: bool, size: int
) -> Window:
    """tokens; counted [T]: 1 where a token is learnt; cut: how many tokens at the end were left out.

    Of an assistant's turn all is learnt that the model has to write: from behind what asks for the turn to the token
    that stops it. everyone: the other turns too.
    """
    safe, mark = mark_control_tokens(messages, list(tokenizer.control))
    with tokenizer.name_template():
        text, turns = answer_spans(tokenizer.chat, safe)
    ids, starts = _tokens(tokenizer, text, mark, [start for start, _ in turns])
    counted = np.full(len(ids), everyone, dtype=np.int8)
    for start, end in turns:
        inside = np.flatnonzero((starts >= start) & (starts < end))
        last = inside[np.isin(np.asarray(ids)[inside], list(stop))][-1:]
        if not len(last):
            origin = f"{tokenizer.template_file}: " if tokenizer.template_file else ""
            raise ValueError(
                f"{origin}the chat template ends an assistant's turn without a token that stops writing "
                f"({', '.join(tokenizer.tokens(stop))}); name the one it ends with as eos_token_id in the model's "
                "generation_config.json"
            )
        counted[inside[inside <= last]] = 1
    most = size + 1  # the last token is only foretold
    return {
        "tokens": np.array(ids[:most], dtype=np.int32),
        "counted": counted[:most],
        "cut": np.array(max(0, len(ids) - most), dtype=np.int32),
    }


def _tokens(tokenizer: Tokenizer, text: str, mark: str, borders: Sequence[int]) -> tuple[list[int], NDArray[Any]]:
    """Tokens, and where each begins. None reaches over the beginning of an answer: the model writes from there on."""
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
    """A learnt tokenizer that knows the signs of the roles as tokens of their own."""
    tokenizer.inner.add_special_tokens([tokenizers.AddedToken(sign, normalized=False, special=True) for sign in SIGNS])
    return Tokenizer(
        tokenizer.inner,
        tokenizer.named,
        template=tokenizer.template,
        template_file=tokenizer.template_file,
        files=tokenizer.files,
    )


def add_default_template(tokenizer: Tokenizer, first: int, last: int) -> None:
    """A tokenizer without a chat template gets the default one, and is saved with it. first, last: tokens that begin
    and end a text. Signs of roles that are no tokens of its own are spelled out."""
    tokenizer.template, tokenizer.template_file = default_template(*tokenizer.tokens([first, last])), ""
    if CONFIG in tokenizer.files:  # which is saved unchanged
        tokenizer.files["chat_template.jinja"] = tokenizer.template.encode()
