"""Attention maps between the words of one text: complete for short texts; for long ones, a coarse map and exact rows of
a sample. Subwords are merged: attention to a word is the sum over its subwords, attention from a word the mean of their
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from multihead.inference import Pipeline
from multihead.inspection import RecordedInput, watch
from multihead.inspection.head_profile import ROLLED, attention_rollout, stats
from multihead.inspection.inputs import ModelInputs, collate_windows, max_input_length, run_body, target_tokens
from multihead.models import EncoderDecoder
from multihead.tasks import Batch, Window
from multihead.tasks.classify import Classify
from multihead.tasks.word_spans import layout_words, word_of
from multihead.text.tokenizer import Encoding, Tokenizer

EXACT_WORDS = 256  # words: up to here every weight is stored
BANDS = 96  # a coarse map has at most this many rows and columns
SAMPLED = 192  # default rows of a long text, evenly spaced
STRONGEST = 12  # keys stored per row
CHUNK = 2**24  # weights at a time
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class ExactRows:
    """Exact rows of a long text: for each word `at`, its strongest keys and their weights."""

    at: NDArray[np.int64]  # [R]
    keys: NDArray[np.int64]  # [R, k]
    weights: Floats  # [R, k]


@dataclass(frozen=True)
class HeadMap:
    """Map of one head: all weights between words, or a coarse map and some rows."""

    address: str
    name: str
    weights: Floats  # [queries, keys], or [bands, bands]: attention from one band of words to another
    rows: ExactRows | None = None


@dataclass(frozen=True)
class StackMaps:
    """Maps of all heads of one stack and kind."""

    stack: str
    kind: str
    queries: list[str]  # words
    keys: list[str]
    maps: list[HeadMap]
    rollout: Floats | None = None

    @property
    def coarse(self) -> bool:
        return max(len(self.queries), len(self.keys)) > EXACT_WORDS


@dataclass(frozen=True)
class AttentionMaps:
    """Data of `heads show`."""

    title: str
    text: str
    views: list[StackMaps]
    note: str = ""

    def find(self, address: str) -> tuple[StackMaps, HeadMap]:
        for view in self.views:
            for head_map in view.maps:
                if head_map.address == address:
                    return view, head_map
        first, last = self.views[0].maps[0].address, self.views[-1].maps[-1].address
        raise ValueError(f"unknown head {address!r}; addresses are stack.layer.kind.head, here {first} … {last}")


@torch.inference_mode()
def attention_maps(
    loaded: Pipeline,
    text: str,
    second: str | None = None,
    *,
    window: int | None = None,
    head: str | None = None,
    rows: Sequence[int] = (),
    title: str = "",
) -> AttentionMaps:
    """Compute the maps of one text. window: part of a text longer than the model, from 1. head: for a long text, every
    row of this head. rows: for a long text, these words (from 0) of all heads. second: the second text of a pair, or a
    target."""
    if not text.strip():
        raise ValueError("the text is empty; give a sentence")
    model, note = loaded.model.eval(), ""
    if isinstance(model.body, EncoderDecoder):
        second = second or _generate_target(loaded, text)
    else:
        text, note = _part(loaded, text, second, window)
    batch, words = _read(loaded, text, second)
    with watch(model) as recording:
        run_body(model, batch)
        short = batch["tokens"].shape[1] <= ROLLED
        names = _names(loaded, text, second) if short else {}
        views = []
        groups: dict[str, list[str]] = {}
        for name in recording.numbers:
            stack, _, kind = name.split(".")
            groups.setdefault(f"{stack}.{kind}", []).append(name)
        for group, attentions in groups.items():
            queries, keys = words[0], words[0]
            if "target" in batch and group.startswith("decoder"):
                queries, keys = words[1], words[0] if group.endswith("cross") else words[1]
            addresses = [f"{name}.{n}" for name in attentions for n in recording.numbers[name]]
            if head is not None and max(len(queries[0]), len(keys[0])) > EXACT_WORDS and head in addresses:
                addresses = [head]
            maps = [_map(recording[0], a, names.get(a, ""), queries, keys, rows, head) for a in addresses]
            flow = _rollout(recording[0], attentions, queries) if short and group.endswith("self") else None
            stack, kind = group.split(".")
            views.append(StackMaps(stack, kind, queries[0], keys[0], maps, flow))
    drawn = AttentionMaps(title, text, views, note)
    if head is not None:
        drawn.find(head)
    return drawn


TokenWords = tuple[list[str], NDArray[np.int64]]  # the words, and the word index of each token


def _read(loaded: Pipeline, text: str, second: str | None) -> tuple[Batch, list[TokenWords]]:
    """Return the batch of one input and its words; for an encoder-decoder, of both sides."""
    assert loaded.tokenizer is not None
    feed, tokenizer = ModelInputs(loaded), loaded.tokenizer
    if feed.pair:
        (window,) = feed.encode_plain(text, second or "")
        source = _words(tokenizer, tokenizer.encode(text), text)
        writer = loaded.target_tokenizer or tokenizer.target
        words, of = _words(writer, writer.encode(second or ""), second or "")
        start = writer.tokens(target_tokens(loaded, "")[:1])[0]
        target = ([start, *words], np.concatenate(([0], of + 1)))
        return collate_windows([window], feed.pad), [source, target]
    encoding = tokenizer.encode(text, second)
    window = _window(feed, text, second, encoding)
    return collate_windows([window], feed.pad), [_words(tokenizer, encoding, text, second)]


def _window(feed: ModelInputs, text: str, second: str | None, encoding: Encoding) -> Window:
    """Encode the text like the task, which may add inputs (letter case), or plainly."""
    if second is None and feed.task is not None and feed.task.inputs in (("text",), ("tokens",)):
        windows = feed.task.encode({"text": text})
        if len(windows) == 1 and windows[0]["tokens"].tolist() == encoding.ids:
            return {name: array for name, array in windows[0].items() if name in ("tokens", "types")}
    typed = {"types": np.array(encoding.types)} if any(encoding.types) else {}
    return {"tokens": np.array(encoding.ids), **typed}


def _words(tokenizer: Tokenizer, encoding: Encoding, *texts: str | None) -> TokenWords:
    """Merge tokens to words; special tokens stand alone, and tokens outside of words join the previous word. A word is
    spelled as its tokens cover the text: "'t" may be one."""
    spelled = tokenizer.tokens(encoding.ids)
    owners = [word_of(encoding.offsets, layout_words({"text": text or ""})[2]) for text in texts]
    spans: list[tuple[int | None, int, int]] = []  # side, begin, end; side None: show the token itself
    of: list[int] = []
    last: tuple[int, int] | None = None
    for i, side in enumerate(encoding.sequences):
        begin, end = encoding.offsets[i]
        number = -1 if side is None else int(owners[side][i])
        if side is None:
            spans.append((None, i, i))
            last = None
        elif last is not None and (number < 0 or last == (side, number)):
            spans[-1] = (side, spans[-1][1], end)
        else:
            spans.append((side, begin, end))
            last = (side, number)
        of.append(len(spans) - 1)
    words = [spelled[begin] if side is None else (texts[side] or "")[begin:end].strip() for side, begin, end in spans]
    return [word or "␣" for word in words], np.array(of, dtype=np.int64)


def _part(loaded: Pipeline, text: str, second: str | None, window: int | None) -> tuple[str, str]:
    """Return the text, or the requested part of it."""
    assert loaded.tokenizer is not None
    size = max_input_length(loaded)
    parts = Classify(loaded.tokenizer, [], size, min(64, size // 4)).tokenize_windows(text)
    if len(parts) == 1 or second is not None:
        return text, ""
    if window is None or not 1 <= window <= len(parts):
        count = len(loaded.tokenizer.encode(text))
        raise ValueError(
            f"the text has {count:,} tokens, the model's limit is {size:,}; show a part: --window 1 to {len(parts)}"
        )
    inside = [offset for offset, side in zip(parts[window - 1].offsets, parts[window - 1].sequences, strict=True)
              if side is not None]  # fmt: skip
    return text[inside[0][0] : inside[-1][1]], f"part {window} of {len(parts)}"


def _generate_target(loaded: Pipeline, text: str) -> str:
    """Generate the target with the model itself."""
    try:
        (prediction,) = loaded.predict([text])
        return str(prediction["text" if "text" in prediction else "target"])
    except (ValueError, KeyError) as error:
        raise ValueError(f"pass the target text too: --second ({error})") from None


def _names(loaded: Pipeline, text: str, second: str | None) -> dict[str, str]:
    """Return the pattern name of each head in this text."""
    if second is None:
        values = {"text": text}
    else:
        pair = isinstance(loaded.model.body, EncoderDecoder)
        values = dict(zip(("source", "target") if pair else ("text_a", "text_b"), (text, second), strict=True))
    bare = replace(loaded, task=None) if second is not None else loaded
    profile = stats(bare, [values])
    return dict(zip(profile.addresses, profile.names, strict=True))


def _merge_words(weights: torch.Tensor, queries: NDArray[np.int64], keys: NDArray[np.int64]) -> torch.Tensor:
    """Merge rows and columns of tokens to words: sum columns, average rows."""
    rows = _sum_words(_sum_words(weights.float(), 1, keys), 0, queries)
    return rows / torch.from_numpy(np.bincount(queries))[:, None]


def _sum_words(table: torch.Tensor, axis: int, of: NDArray[np.int64]) -> torch.Tensor:
    """Sum the lines of one word; most words have one token, so only the rest is touched."""
    firsts = np.unique(of, return_index=True)[1]
    rest = np.setdiff1d(np.arange(len(of)), firsts, assume_unique=True)
    sums = table.index_select(axis, torch.from_numpy(firsts))
    if len(rest):
        at = torch.from_numpy(rest)
        sums.index_add_(axis, torch.from_numpy(of[rest]), table.index_select(axis, at))
    return sums


def _map(
    recorded: RecordedInput,
    address: str,
    name: str,
    queries: TokenWords,
    keys: TokenWords,
    requested: Sequence[int],
    head: str | None,
) -> HeadMap:
    Q, K = len(queries[0]), len(keys[0])
    if max(Q, K) <= EXACT_WORDS:
        return HeadMap(address, name, _merge_words(recorded.weights(address), queries[1], keys[1]).numpy())
    every = np.linspace(0, Q - 1, min(Q, SAMPLED)).round().astype(np.int64)
    asked = np.array([row for row in requested if 0 <= row < Q], dtype=np.int64)
    at = np.arange(Q) if address == head else np.unique(np.concatenate((every, asked)))
    bands = min(BANDS, Q), min(BANDS, K)
    coarse, counts = np.zeros(bands, dtype=np.float64), np.zeros(bands[0])
    widths = np.bincount(np.arange(K) * bands[1] // K).tolist()
    strongest: list[tuple[NDArray[np.int64], Floats]] = []
    starts = np.searchsorted(queries[1], np.arange(Q + 1))  # tokens of a word are adjacent
    sizes = starts[at + 1] - starts[at]
    blocks = np.cumsum(sizes) // max(1, CHUNK // len(keys[1]))
    for block in (np.flatnonzero(blocks == number) for number in np.unique(blocks)):
        tokens = np.concatenate([np.arange(starts[word], starts[word + 1]) for word in at[block]])
        word_of_row = np.repeat(np.arange(len(block)), sizes[block])
        rows = _merge_words(recorded.weights(address, rows=tokens.tolist()), word_of_row, keys[1])
        top = rows.topk(min(STRONGEST, K))
        strongest.append((top.indices.numpy(), top.values.numpy()))
        share = torch.stack([part.sum(1) for part in rows.split(widths, dim=1)], dim=1).numpy()
        band = at[block] * bands[0] // Q
        np.add.at(coarse, band, share)
        np.add.at(counts, band, 1)
    coarse /= np.maximum(counts, 1)[:, None]
    exact = ExactRows(at, np.concatenate([k for k, _ in strongest]), np.concatenate([w for _, w in strongest]))
    return HeadMap(address, name, coarse.astype(np.float32), exact)


def _rollout(recorded: RecordedInput, attentions: list[str], words: TokenWords) -> Floats | None:
    if len(words[0]) > EXACT_WORDS:
        return None
    means = [
        torch.stack([recorded.weights(f"{name}.{n}") for n in recorded.seen.numbers[name]]).mean(0)
        for name in attentions
    ]
    return _merge_words(attention_rollout(torch.stack(means))[-1], words[1], words[1]).numpy()
