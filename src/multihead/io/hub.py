"""Locate a model: a local path, or `hub:owner/name[@revision]`, the only form that accesses the network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

PREFIX = "hub:"
NAME = re.compile(r"hub:([A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@([\w./-]{1,200}))?")
# Nothing that could be run. The .bin weights only where there are no safetensors.
TEXTS = ["*.json", "*.txt", "*.jinja", "*.model", "*.spm"]
WEIGHTS, FALLBACK = ["*.safetensors"], ["pytorch_model*.bin"]
SECONDS = 10  # timeout of the first request


def resolve(where: str | Path) -> Path:
    """Return a local directory or file; `hub:` names are first fetched into the local cache."""
    if not isinstance(where, str | Path):
        raise ValueError(f"give a model as a path or hub:owner/name (a str), not as {type(where).__name__}")
    if isinstance(where, Path) or not where.startswith(PREFIX):
        path = Path(where).expanduser()
        if (path / "run.toml").exists() and not (path / "config.json").exists():
            raise ValueError(f"{path} is a run; its model, once it is trained, is {path / 'model'}")
        if path.exists():
            return path
        hint = f"; to fetch it from the hub, write hub:{where}" if NAME.fullmatch(f"{PREFIX}{where}") else ""
        raise ValueError(f"{path}: no such file or directory; check the path{hint}")
    named = NAME.fullmatch(where)
    if named is None or ".." in where:
        raise ValueError(f"{where[:200]!r} is not a hub address; write hub:owner/name or hub:owner/name@revision")
    return _fetch(named[1], named[2])


def _fetch(name: str, revision: str | None) -> Path:
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ValueError(f"hub:{name} needs a package; run pip install 'multihead[hub]'") from None
    if _offline():
        return _find_cached(hub, name, revision, "HF_HUB_OFFLINE is set: nothing is fetched")
    try:
        # One request with a short timeout, before anything that would be retried for minutes.
        files = hub.HfApi().model_info(name, revision=revision, timeout=SECONDS).siblings or []
    except hub.errors.GatedRepoError:
        raise ValueError(
            f"hub:{name}: its owner asks you to agree to terms; do so on its page, then hf auth login"
        ) from None
    except hub.errors.RevisionNotFoundError:
        raise ValueError(f"hub:{name}: revision {revision!r} does not exist; check it on the model's page") from None
    except hub.errors.RepositoryNotFoundError:
        raise ValueError(f"hub:{name}: no such public model; check the name, or hf auth login") from None
    except Exception as error:  # requests or httpx, by version: no route, no name, refused, too slow
        return _find_cached(hub, name, revision, f"the hub does not answer ({type(error).__name__})")
    weights = WEIGHTS if any(file.rfilename.endswith(".safetensors") for file in files) else FALLBACK
    return _snapshot(hub, name, revision, [*TEXTS, *weights])


def _find_cached(hub: Any, name: str, revision: str | None, why: str) -> Path:
    """Return the cached snapshot; raise ValueError that lists the cache where there is none."""
    try:
        path = _snapshot(hub, name, revision, [*TEXTS, *WEIGHTS, *FALLBACK], local_files_only=True)
    except hub.errors.LocalEntryNotFoundError:
        path = None
    if path is not None and (path / "config.json").exists():
        return path
    try:
        cached = sorted(repo.repo_id for repo in hub.scan_cache_dir().repos if repo.repo_type == "model")
    except hub.errors.CacheNotFound:
        cached = []
    shown = ", ".join(cached[:10]) + (" …" if len(cached) > 10 else "") if cached else "nothing"
    at = f"@{revision}" if revision else ""
    raise ValueError(
        f"hub:{name}{at}: {why}, and it is not in the local cache, which holds {shown}; "
        "go online once, or give a directory"
    )


def _snapshot(hub: Any, name: str, revision: str | None, patterns: list[str], **options: Any) -> Path:
    return Path(hub.snapshot_download(name, revision=revision, allow_patterns=patterns, **options))


def _offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
