"""A learnt tokenizer kept beside the token cache, so that a run that goes on need not learn it again.

One JSON file, named by the content of everything that it was learnt from; written aside and renamed. One that is
damaged is learnt again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import tokenizers

from multihead.data import store
from multihead.data.disk import read_json, write_json
from multihead.data.foreign import calm
from multihead.data.tokenizer import Tokenizer


def learnt(
    cache: Path,
    files: Iterable[str | Path],
    settings: Mapping[str, Any],
    texts: Callable[[], Iterable[str]],
    kind: str,
    vocab: int,
    lowercase: bool,
) -> Tokenizer:
    """From the cache if it has it. files, settings: all that decides which texts these are."""
    made = {"kind": kind, "vocab": vocab, "lowercase": lowercase, "tokenizers": tokenizers.__version__}
    path = cache / f"tokenizer-{store.key(files, b'', {**settings, **made})}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        return _opened(path)
    found = Tokenizer.train(texts(), kind, vocab, lowercase=lowercase)
    cache.mkdir(parents=True, exist_ok=True)
    write_json(path, {"named": found.named, "tokenizer": found.inner.to_str()})
    return _opened(path)  # as every later run will see it, to the last digit


def _opened(path: Path) -> Tokenizer:
    kept = read_json(path)
    with calm(str(path)):
        inner = tokenizers.Tokenizer.from_str(kept["tokenizer"])
    return Tokenizer(inner, {str(name): str(token) for name, token in kept["named"].items()})
