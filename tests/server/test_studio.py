"""The studio in a real browser, against models that were really trained; every host but loopback is blocked."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from multihead.inference import Pipeline
from multihead.pretrained import load, save
from multihead.server import Access, ModelServer, StudioOptions, serve_in_thread

sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright drives the browser")

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
SECONDS = 20_000  # milliseconds until an expectation is given up: generous, as the machine may be busy
HEADS = [f"encoder.{layer}.self.{head}" for layer in range(3) for head in range(4)]
NASTY = "<img src=x onerror=alert(1)> & </script><b>fine</b>"
PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def studio(
    models: dict[str, Pipeline], model_of: Callable[..., Pipeline], row_of: Callable[..., Any], tmp_path_factory: Any
) -> Iterator[ModelServer]:
    """A server with a model from a directory, so that a pruned one can be made of it, and data to score on."""
    directory, saved = tmp_path_factory.mktemp("mood"), tmp_path_factory.mktemp("saved")
    save(models["classify"], directory)
    options = StudioOptions(rows={"classify": [row_of("classify", i) for i in range(40)]}, save_to=saved)
    names = ("classify", "ner", "answer", "translate", "generate", "match", "mask")
    served = {name: models[name] for name in names} | {"long": model_of("classify", size=4400)}
    with serve_in_thread(served, studio=options) as running:
        running.table.models["classify"].directory = str(directory)
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no Chromium found: install chromium, or name one in $CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Any, studio: ModelServer) -> Iterator[Callable[..., Any]]:
    """Open the studio; afterwards nothing may have complained, or have asked another host."""
    contexts, complaints, strangers = [], [], []

    def guard(route: Any) -> None:
        if urlsplit(route.request.url).hostname == "127.0.0.1":
            route.continue_()
        else:
            strangers.append(route.request.url)
            route.abort()

    def opened(link: str = "", viewport: dict[str, int] | None = None, quiet: bool = True, **options: Any) -> Any:
        context = chromium.new_context(viewport=viewport or {"width": 1280, "height": 900}, locale="en-US", **options)
        context.route("**/*", guard)
        context.set_default_timeout(SECONDS)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        if quiet:
            page.on("console", lambda said: complaints.append(said.text) if said.type in ("error", "warning") else None)
        page.goto(f"{studio.address}/{link}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
    assert strangers == []


def wait_for(page: Any, selector: str, count: int | None = None) -> Any:
    found = page.locator(selector)
    sync_api.expect(found.first if count is None else found).to_have_count(
        1 if count is None else count, timeout=SECONDS
    )
    return found


def predict(page: Any, **texts: str) -> None:
    for column, text in texts.items():
        page.fill(f"#field-{column}-a", text)
    page.click("#predict")


def expect_text(page: Any, selector: str, text: str) -> None:
    sync_api.expect(page.locator(selector)).to_contain_text(text, timeout=SECONDS)


def test_type_predict_open_a_head_and_switch_it_off(open_page: Any, models: dict[str, Pipeline]) -> None:
    page = open_page("#model=classify")
    predict(page, text="a dull film Ada")
    nlp = models["classify"]
    expect_text(page, "#prediction-a .verdict", nlp("a dull film Ada")["label"])
    wait_for(page, ".thumb", 12)
    page.click('.thumb[data-head="encoder.1.self.2"]')
    expect_text(page, "#head-title", "encoder.1.self.2")
    wait_for(page, "#head .lines path")
    for mode in ("Text", "Map", "Across", "Rollout of all heads", "Lines"):
        page.get_by_role("button", name=mode, exact=True).click()
        wait_for(page, "#head .drawn > *", 1)
    page.click("#switch-head")
    expect_text(page, "#selection", "1 of 12 heads")
    with nlp.ablate(["encoder.1.self.2"]):
        after = nlp("a dull film Ada")
    expect_text(page, "#prediction-a .bars", f"{100 * after['score']:.1f} %")
    assert page.locator('.thumb.off[data-head="encoder.1.self.2"]').count() == 1


def test_the_answer_changes_and_a_link_brings_it_back(open_page: Any, models: dict[str, Pipeline]) -> None:
    nlp, text = models["ner"], "Ada visited Rome ."
    with nlp.ablate(HEADS):
        lost = nlp(text)["entities"]
    assert lost != nlp(text)["entities"]
    page = open_page("#model=ner")
    predict(page, text=text)
    wait_for(page, "#prediction-a mark", len(nlp(text)["entities"]))
    page.get_by_role("button", name="Switch off", exact=True).click()
    for address in HEADS:
        page.click(f'.thumb[data-head="{address}"]')
    expect_text(page, "#selection", "12 of 12 heads")
    wait_for(page, "#prediction-a .compared")
    expect_text(page, "#prediction-a", "lost")
    shown = page.locator("#prediction-a").inner_text()
    page.reload()  # the link is in the address
    expect_text(page, "#selection", "12 of 12 heads")
    expect_text(page, "#prediction-a", "lost")
    assert page.locator("#prediction-a").inner_text() == shown
    assert page.input_value("#field-text-a") == text
    page.click("#all-on")
    wait_for(page, "#prediction-a .compared", 0)


def test_keys(open_page: Any) -> None:
    page = open_page("#model=classify")
    page.fill("#field-text-a", "a fine film Bo")
    page.press("#field-text-a", "Control+Enter")
    wait_for(page, ".thumb", 12)
    page.focus('.thumb[data-head="encoder.0.self.0"]')
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect_text(page, "#head-title", "encoder.1.self.1")
    page.keyboard.press("x")
    expect_text(page, "#selection", "1 of 12 heads")


def test_chinese(open_page: Any, models: dict[str, Pipeline]) -> None:
    page = open_page("#model=ner&language=zh&input=" + quote(json.dumps({"text": "我在北京见到了你"})))
    expect_text(page, "#predict", "预测")
    found = models["ner"]("我在北京见到了你")["entities"]
    wait_for(page, "#prediction-a mark", len(found))
    wait_for(page, "#head svg.across")  # read along a line
    page.get_by_role("button", name="English", exact=True).click()
    expect_text(page, "#predict", "Predict")
    assert page.input_value("#field-text-a") == "我在北京见到了你"


@pytest.mark.parametrize(
    ("task", "texts", "selector"),
    [
        (
            "answer",
            {"question": "Where did Bo fly?", "context": "On Monday Bo flew to Rome with a friend."},
            "mark.answer",
        ),
        ("translate", {"source": "Bo is in Rome"}, ".written"),
        ("match", {"text_a": "Bo went to Rome", "text_b": "Bo is in Rome"}, ".bars"),
        ("mask", {"text": "number 1: Bo [MASK] in Rome, and Rome likes Bo"}, ".bars"),
        ("generate", {"prompt": "number 1"}, ".growing.finished .piece"),
    ],
)
def test_every_task_is_drawn(open_page: Any, task: str, texts: dict[str, str], selector: str) -> None:
    page = open_page(f"#model={task}")
    predict(page, **texts)
    wait_for(page, f"#prediction-a {selector}")
    wait_for(page, "#head .drawn > *")
    page.click("#switch-head")
    wait_for(page, "#prediction-a .compared")
    page.locator(".thumb").last.click()
    expect_text(page, "#head-title", str(page.locator(".thumb").last.get_attribute("data-head")))
    wait_for(page, "#head .drawn:not(.waiting) > *")
    if task == "generate":
        assert page.locator("#prediction-a .bar").count() == 8  # the next token, before and after


def test_tokens_have_alternatives(open_page: Any) -> None:
    page = open_page("#model=generate")
    wait_for(page, "#prediction-a .growing.finished")
    page.locator("#prediction-a .piece").nth(1).click()
    wait_for(page, "#prediction-a .alternatives .bar", 5)


def test_two_texts_side_by_side(open_page: Any) -> None:
    page = open_page("#model=classify")
    page.click("#compare")
    page.fill("#field-text-b", "a fine film Ada")
    page.click("#predict-b")
    wait_for(page, "#prediction-b .bars")
    wait_for(page, "#head .head-view .drawn > *", 2)
    page.reload()
    wait_for(page, "#prediction-b .bars")


def test_score_and_save(open_page: Any, studio: ModelServer) -> None:
    page = open_page(f"#model=classify&off={HEADS[0]},{HEADS[5]}")
    page.click("#score")
    wait_for(page, "#selection table")
    expect_text(page, "#selection table", "accuracy")
    page.fill("#save-name", "small")
    page.click("#save")
    expect_text(page, "#selection", "Saved as")
    path = page.locator("#selection .selection-results").inner_text().split("Saved as ")[1].split(":")[0]
    smaller = load(path)
    assert smaller.pruned["heads"] == [HEADS[0], HEADS[5]]
    assert {path.name for path in Path(path).parent.iterdir()} == {"small"}


def test_pictures(open_page: Any) -> None:
    page = open_page("#model=classify")
    wait_for(page, "#head .lines path")
    for kind, magic in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind, exact=True).click()
        assert Path(waiting.value.path()).read_bytes().startswith(magic)


def test_markup_is_text(open_page: Any) -> None:
    page = open_page("#model=classify")
    predict(page, text=NASTY)
    wait_for(page, "#prediction-a .bars")
    page.get_by_role("button", name="Text", exact=True).click()
    wait_for(page, "#head .token")
    assert page.locator("main img, main b").count() == 0


def test_errors_are_kind(open_page: Any, studio: ModelServer) -> None:
    page = open_page("#model=classify", quiet=False)  # the browser itself tells of a status that is no 200
    predict(page, text="   ")
    expect_text(page, "[role=alert]", "Type a text first")
    predict(page, text="a film " * 20_000)
    expect_text(page, "[role=alert]", "too long")
    predict(page, text="a fine film")
    wait_for(page, "#prediction-a .bars")
    wait_for(page, "[role=alert]", 0)
    page.route("**/v1/predict/**", lambda route: route.abort())
    predict(page, text="a fine film Bo")
    expect_text(page, "[role=alert]", "does not answer")
    other = open_page("#model=nobody", quiet=False)
    expect_text(other, "[role=alert]", "not served here")


def test_a_long_text_in_windows(open_page: Any) -> None:
    page = open_page("#model=classify")
    predict(page, text="a fine film Ada " * 1000)
    expect_text(page, "#prediction-a", "windows")
    wait_for(page, "#window option:nth-child(80)")
    page.select_option("#window", "79")
    wait_for(page, "#head .drawn > *")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_rows_of_a_long_text_are_fetched(open_page: Any) -> None:
    """4,000 tokens in one window: a coarse map, and each row when it is pointed at."""
    page = open_page("#model=long")
    predict(page, text="a fine film Ada " * 1000)
    expect_text(page, "#head .told", "Point at a word")
    page.locator('#head .token[data-at="2001"]').hover()
    expect_text(page, "#head .told", "looks at")
    page.get_by_role("button", name="Map", exact=True).click()
    wait_for(page, "#head canvas.map")
    page.click("#switch-head")
    wait_for(page, "#prediction-a .compared")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(open_page: Any, scheme: str) -> None:
    page = open_page("#model=ner", viewport=PHONE, color_scheme=scheme)
    predict(page, text="Ada visited Rome .")
    wait_for(page, "#prediction-a mark")
    for mode in ("Across", "Text", "Map", "Lines"):
        page.get_by_role("button", name=mode, exact=True).click()
        wait_for(page, "#head .drawn > *", 1)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.click("#switch-head")
    expect_text(page, "#selection", "1 of 12 heads")


def test_page_is_open_and_the_api_wants_the_key(chromium: Any, models: dict[str, Pipeline]) -> None:
    with serve_in_thread({"classify": models["classify"]}, access=Access(key="secret")) as running:
        page = chromium.new_page()
        page.set_default_timeout(SECONDS)
        page.goto(running.address)
        page.fill("#key", "secret")
        page.keyboard.press("Enter")
        wait_for(page, "#prediction-a .bars")
        page.close()


def test_only_what_the_page_is_made_of_is_served(studio: ModelServer, client_of: Any) -> None:
    client = client_of(studio)
    page = client.get("/")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    for path in re.findall(rb'(?:src|href)="([\w/.]+)"', page.body):
        assert client.get(f"/{path.decode()}").status == 200
    for path in ("/studio/../api.py", "/studio/%2e%2e/api.py", "/views/", "/studio/index.html", "/studio/nothing.js"):
        assert client.get(path).status == 404
