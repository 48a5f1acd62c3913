"""The page of `heads show` in a real browser."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from multihead.inspection.attention_maps import AttentionMaps, ExactRows, HeadMap, StackMaps
from multihead.report.attention_html import render_attention

pytestmark = pytest.mark.slow
PHONE = {"width": 390, "height": 800}
NASTY = "</script><b>x"
WORDS = ["[CLS]", "Angela", "Merkel", "去", "公", "园", NASTY, "[SEP]"]


def weights(rows: int, columns: int, seed: int) -> Any:
    return np.random.default_rng(seed).dirichlet(np.full(columns, 0.3), rows).astype(np.float32)


def view(kind: str, queries: list[str], keys: list[str]) -> StackMaps:
    numbers = [(layer, head) for layer in range(2) for head in range(3) if (layer, head) != (1, 1)]
    maps = [
        HeadMap(f"decoder.{layer}.{kind}.{head}", "previous token" if head == 2 else "mixed",
            weights(len(queries), len(keys), 10 * layer + head))
        for layer, head in numbers
    ]  # fmt: skip
    return StackMaps(
        "decoder", kind, queries, keys, maps, weights(len(queries), len(queries), 99) if kind == "self" else None
    )


def picture() -> AttentionMaps:
    return AttentionMaps(
        "models/x", f"Angela {NASTY}", [view("self", WORDS, WORDS), view("cross", WORDS, ["a", "b", "c"])]
    )


def long_picture() -> AttentionMaps:
    words = [f"word{i}" for i in range(5000)]
    at = np.arange(0, 5000, 25)
    keys = np.stack([np.arange(12)] * len(at)) + at[:, None] // 2
    rows = ExactRows(at, keys, np.sort(weights(len(at), 12, 3))[:, ::-1].copy())
    maps = [HeadMap(f"encoder.0.self.{n}", "", weights(96, 96, n), rows) for n in range(4)]
    return AttentionMaps("long", " ".join(words), [StackMaps("encoder", "self", words, words, maps)])


def opened(browser: Any, drawn: AttentionMaps, folder: Path, head: str | None = None) -> Any:
    path = folder / "heads.html"
    path.write_text(render_attention(drawn, head), encoding="utf-8")
    browser.open(path.as_uri())
    return browser


def quiet(browser: Any) -> None:
    assert browser.complaints == []
    assert [url for url in browser.requests if url.startswith(("http", "file")) and "heads.html" not in url] == []


def press(browser: Any, words: str) -> None:
    browser.ask(f"[...document.querySelectorAll('button')].find((b) => b.textContent === {words!r}).click()")
    browser.settle()


@pytest.mark.parametrize("browser", [{}, {"dark": True}, PHONE, {**PHONE, "dark": True}], indirect=True)
def test_all_ways_to_look(browser: Any, tmp_path: Path) -> None:
    drawn = picture()
    opened(browser, drawn, tmp_path)
    assert browser.ask("document.querySelectorAll('.thumb').length") == 5
    assert browser.ask("document.querySelectorAll('.heads .gone').length") == 1  # cut out
    assert browser.ask("document.querySelector('#one h2').textContent") == "decoder.0.self.2"  # one with a name
    assert browser.ask("document.querySelectorAll('.lines path').length") > 5
    for words in ("Text", "Map", "Lines", "Rollout of all heads", "decoder, cross-attention", "Map", "Text"):
        press(browser, words)
        assert browser.ask("document.documentElement.scrollWidth") <= browser.width
        assert browser.ask("document.querySelector('#one .drawn').children.length") == 1
    assert browser.ask("document.querySelector('h1').textContent") == f"Angela {NASTY}"
    quiet(browser)


def test_numbers_are_the_weights(browser: Any, tmp_path: Path) -> None:
    drawn = picture()
    opened(browser, drawn, tmp_path, "decoder.1.self.0")
    one = drawn.views[0].maps[3]
    assert one.address == "decoder.1.self.0"
    assert browser.ask("document.querySelector('.thumb[aria-pressed=true]').getAttribute('aria-label')") == (
        "decoder.1.self.0 mixed"
    )
    box = browser.box(".side.from .word:nth-child(3)")
    browser.point(box["x"] + 5, box["y"] + 5)
    browser.settle()
    shares = browser.ask("[...document.querySelectorAll('.share')].map((node) => node.textContent)")
    for said, weight in zip(shares, one.weights[2], strict=True):
        assert said == (f"{100 * weight:.0f} %" if weight >= 0.01 else said)
    press(browser, "Map")
    box = browser.box(".map")
    browser.point(box["x"] + 1.5 * box["width"] / 8, box["y"] + 2.5 * box["height"] / 8)
    browser.settle()
    said = browser.ask("document.querySelector('.tip.shown').innerText").split("\n")
    assert said[0] == "Merkel → Angela"
    assert float(said[1].split()[-2]) == pytest.approx(100 * one.weights[2, 1], abs=0.11)
    press(browser, "Text")
    box = browser.box(".token[data-at='2']")
    browser.point(box["x"] + 3, box["y"] + 5)
    browser.settle()
    told = browser.ask("document.querySelector('.told').textContent")
    best = int(one.weights[2].argmax())
    assert told.startswith(f"Merkel looks at {WORDS[best]} {100 * one.weights[2, best]:.0f} %")
    lit = browser.ask("[...document.querySelectorAll('.token')].filter((t) => t.style.backgroundColor).length")
    assert lit == int((one.weights[2] >= 0.004).sum())
    quiet(browser)


def test_a_long_text(browser: Any, tmp_path: Path) -> None:
    drawn = long_picture()
    opened(browser, drawn, tmp_path)
    assert browser.ask("document.querySelectorAll('.thumb').length") == 4
    box = browser.box(".map")
    browser.point(box["x"] + 2, box["y"] + 2)
    browser.settle()
    assert "words 0–52" in browser.ask("document.querySelector('.tip.shown').innerText")
    press(browser, "Text")
    assert browser.ask("document.querySelectorAll('.token').length") == 4000
    for word, told in ((50, "word50 looks at word25"), (51, "The row of “word51” is not in this page")):
        box = browser.box(f".token[data-at='{word}']")
        browser.point(box["x"] + 3, box["y"] + 5)
        browser.settle()
        assert browser.ask("document.querySelector('.told').textContent").startswith(told)
    browser.click(".flow + .more")
    assert browser.ask("document.querySelectorAll('.token').length") == 5000
    quiet(browser)
