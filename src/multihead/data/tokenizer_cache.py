"""A learnt tokenizer kept beside the token cache, so that a run that goes on need not learn it again.

One JSON file with a checksum of itself, named by the content of everything that it was learnt from; written aside and
renamed. One that is damaged is learnt again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tokenizers

from multihead.data import token_cache
from multihead.io.files import make_directory, read_own_json, write_json
from multihead.io.seal import seal, unseal
from multihead.text.safety import wrap_tokenizer_errors
from multihead.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)


def load_or_train(
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
    path = cache / f"tokenizer-{token_cache.cache_key(files, b'', {**settings, **made})}.json"
    try:
        if path.exists():
            return _load(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s; the tokenizer is learnt again", error if str(path) in str(error) else f"{path}: {error}")
    found = Tokenizer.train(texts(), kind, vocab, lowercase=lowercase)
    make_directory(cache)
    write_json(path, seal({"named": found.named, "tokenizer": found.inner.to_str()}))
    return _load(path)  # as every later run will see it, to the last digit


def _load(path: Path) -> Tokenizer:
    kept = unseal(read_own_json(path), str(path), ("named", "tokenizer"))
    with wrap_tokenizer_errors(str(path)):
        inner = tokenizers.Tokenizer.from_str(kept["tokenizer"])
    return Tokenizer(inner, {str(name): str(token) for name, token in kept["named"].items()})
