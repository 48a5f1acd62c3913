"""A trained tokenizer stored in the token cache, so that a resumed run need not train it again.

One JSON file with a checksum of itself, named by the content of everything that it was trained on, written atomically.
A damaged one is trained again.
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
    """Return the tokenizer from the cache, or train it. files, settings: everything that determines the texts."""
    parameters = {"kind": kind, "vocab": vocab, "lowercase": lowercase, "tokenizers": tokenizers.__version__}
    path = cache / f"tokenizer-{token_cache.cache_key(files, b'', {**settings, **parameters})}.json"
    try:
        if path.exists():
            return _load(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s; the tokenizer is trained again", error if str(path) in str(error) else f"{path}: {error}")
    tokenizer = Tokenizer.train(texts(), kind, vocab, lowercase=lowercase)
    make_directory(cache)
    write_json(path, seal({"named": tokenizer.named, "tokenizer": tokenizer.inner.to_str()}))
    return _load(path)  # as every later run will see it, to the last digit


def _load(path: Path) -> Tokenizer:
    content = unseal(read_own_json(path), str(path), ("named", "tokenizer"))
    with wrap_tokenizer_errors(str(path)):
        inner = tokenizers.Tokenizer.from_str(content["tokenizer"])
    return Tokenizer(inner, {str(name): str(token) for name, token in content["named"].items()})
