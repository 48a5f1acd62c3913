"""Attention maps of heads as one self-contained HTML page.

Weights are embedded as the square roots of their values in 8 or 16 bits, so that small ones retain their digits.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.inspection.attention_maps import AttentionMaps, ExactRows, HeadMap, StackMaps
from multihead.report.html import render

MAIN = "attention.js"
FINE = 2_000_000  # bytes of weights up to which 16 bits are embedded
TITLE = 90  # letters


def render_attention(picture: AttentionMaps, head: str | None = None) -> str:
    """Return the page as text, to be written as UTF-8; head: the one that is shown large at first."""
    weights = sum(head_map.weights.size for view in picture.views for head_map in view.maps)
    bits = 16 if 2 * weights <= FINE else 8
    title = picture.text if len(picture.text) <= TITLE else f"{picture.text[:TITLE]}…"
    data = {
        "title": title,
        "model": picture.title,
        "note": picture.note,
        "bits": bits,
        "head": head,
        "views": [_view(view, bits) for view in picture.views],
    }
    return render(MAIN, title, data)


def _view(view: StackMaps, bits: int) -> dict[str, Any]:
    return {
        "stack": view.stack,
        "kind": view.kind,
        "queries": view.queries,
        "keys": None if view.queries is view.keys or view.queries == view.keys else view.keys,
        "coarse": view.coarse,
        "maps": [_map(head_map, bits) for head_map in view.maps],
        "rollout": None if view.rollout is None else _map(HeadMap("rollout", "", view.rollout), bits),
    }


def _map(head_map: HeadMap, bits: int) -> dict[str, Any]:
    return {
        "address": head_map.address,
        "name": head_map.name,
        "shape": list(head_map.weights.shape),
        "weights": pack_weights(head_map.weights, bits),
        "rows": None if head_map.rows is None else _rows(head_map.rows, bits),
    }


def _rows(rows: ExactRows, bits: int) -> dict[str, Any]:
    return {
        "at": _base64(rows.at.astype("<u4")),
        "count": rows.keys.shape[1],
        "keys": _base64(rows.keys.astype("<u4")),
        "weights": pack_weights(rows.weights, bits),
    }


def pack_weights(weights: NDArray[np.floating], bits: int) -> str:
    """Encode weights from 0 to 1 as integers of √w, little-endian, base64."""
    quantized = np.round(np.sqrt(np.clip(weights, 0, 1)) * (2**bits - 1))
    return _base64(quantized.astype("<u2" if bits == 16 else "u1"))


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(array.tobytes()).decode()
