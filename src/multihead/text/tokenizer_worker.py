"""The process that runs tokenizers whose parts may be slow: untrusted patterns, replacements that expand text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tokenizers import Regex, Tokenizer, pre_tokenizers

from multihead.text.worker import serve

_SOURCE = [""]  # tokenizer.json of the one that is run


@lru_cache(maxsize=2)
def _load(control: bool) -> Tokenizer:
    inner = Tokenizer.from_str(_SOURCE[0])
    inner.encode_special_tokens = not control
    return inner


def run_tokenizer(request: dict[str, Any]) -> Any:
    """Handle a request: probe (a pattern, on texts), load, encode or decode."""
    if "probe" in request:
        cut = pre_tokenizers.Split(Regex(request["probe"]), "isolated")
        for text in request["texts"]:
            cut.pre_tokenize_str(text)
        return None
    if "load" in request:
        _SOURCE[0] = request["load"]
        _load.cache_clear()
        _load(False)
        return None
    if "decode" in request:
        return _load(False).decode(request["decode"], skip_special_tokens=request["skip"])
    texts = [tuple(text) if isinstance(text, list) else text for text in request["encode"]]
    rows = _load(request["control"]).encode_batch(texts, add_special_tokens=request["special"])
    return [(row.ids, row.offsets, row.type_ids, row.special_tokens_mask, row.sequence_ids) for row in rows]


if __name__ == "__main__":
    serve(run_tokenizer)
