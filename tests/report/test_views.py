"""The page in a real browser: no complaint, the right numbers, and it does what its buttons say."""

from pathlib import Path
from typing import Any

import pytest

from multihead.metrics import MetricRow, MetricTable, Score
from multihead.report import (
    ConfusionMatrix,
    GeneratedSample,
    HeadTable,
    Mistake,
    Mistakes,
    ReportData,
    Span,
    render_report,
)

pytestmark = pytest.mark.slow
PHONE = {"width": 390, "height": 800}
ROWS = "[...document.querySelectorAll('{} tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
NASTY = "</script><b>bold</b><img src=x onerror=\"console.error('ran')\"> \u2028 'q' & 中文😀"


def opened(browser: Any, facts: ReportData, folder: Path) -> Any:
    path = folder / "report.html"
    path.write_text(render_report(facts), encoding="utf-8")
    browser.open(path.as_uri())
    return browser


def quiet(browser: Any) -> None:
    """Nothing went wrong and nothing was fetched but the page."""
    assert browser.complaints == []
    assert [url for url in browser.requests if url.startswith(("http", "file")) and "report.html" not in url] == []


def rows(browser: Any, selector: str) -> list[list[str]]:
    return browser.ask(ROWS.format(selector))


def test_english(browser: Any, english: ReportData, tmp_path: Path) -> None:
    opened(browser, english, tmp_path)
    for place, table in ((1, english.tables[0]), (2, english.tables[1])):
        shown = rows(browser, f"#classes .table:nth-of-type({place}) tbody") + rows(
            browser, f"#classes .table:nth-of-type({place}) tfoot"
        )
        for row, cells in zip((*table.rows, *table.averages), shown, strict=True):
            assert cells[0] == row.name
            assert cells[1:4] == [f"{value:.3f}" for value in (row.precision, row.recall, row.f1)]
            assert cells[-1] == f"{row.support:,}"
    values = browser.ask("[...document.querySelectorAll('.figure .value')].map((node) => node.textContent)")
    assert values == [f"{score.value:.3f}" for score in list(english.scores.values())[:4]]
    sections = browser.ask("[...document.querySelectorAll('main > section')].map((node) => node.id)")
    assert sections == ["scores", "classes", "mistakes", "training", "lengths", "heads", "origin"]
    assert browser.ask("document.querySelectorAll('#training svg').length") == 3
    quiet(browser)


@pytest.mark.parametrize("browser", [{}, PHONE], indirect=True)
def test_signatures_stand_beside_their_scores(browser: Any, tmp_path: Path) -> None:
    names = ("bleu", "chrf", "loss", "perplexity", "lead", "more")
    signed = {"bleu": "nrefs:1|case:mixed|eff:no|tok:zh|smooth:exp|version:2.6.0", "lead": NASTY}
    scores = {name: Score(12.5, "percent", signature=signed.get(name)) for name in names}
    opened(browser, ReportData(title="t", task="translate", scores=scores), tmp_path)
    large = "[...document.querySelectorAll('.figure')].map((node) => node.querySelector('.signature')?.textContent)"
    assert browser.ask(large) == [signed["bleu"], None, None, None]
    assert [row[-1] for row in rows(browser, "#scores tbody")] == [NASTY, ""]
    assert browser.ask("document.documentElement.scrollWidth <= innerWidth")
    quiet(browser)


def test_what_was_written(browser: Any, tmp_path: Path) -> None:
    samples = tuple(
        GeneratedSample(f"{i} {NASTY}", f"gold {NASTY}", f"said {NASTY}", -0.5, f"a.tsv:{i}") for i in range(14)
    )
    opened(browser, ReportData(title="t", task="translate", samples=samples), tmp_path)
    visible = "[...document.querySelectorAll('.samples li')].filter((item) => item.offsetHeight).length"
    assert browser.ask(visible) == 10
    texts = browser.ask("[...document.querySelectorAll('.samples li:first-child dd')].map((node) => node.textContent)")
    assert texts == [f"0 {NASTY}", f"gold {NASTY}", f"said {NASTY}"]
    browser.click("#samples .more")
    assert browser.ask(visible) == 14
    quiet(browser)


def test_click_sorts_and_gives_the_order_back(browser: Any, english: ReportData, tmp_path: Path) -> None:
    opened(browser, english, tmp_path)
    body, button = "[data-table=tags] tbody", "[data-table=tags] th:nth-child(4) button"
    first = rows(browser, body)
    browser.click(button)
    f1s = [cells[3] for cells in rows(browser, body)]
    assert f1s == sorted(f1s, reverse=True)
    assert browser.ask("document.querySelector('#classes [aria-sort=descending]').textContent") == "F1"
    browser.click(button)
    assert [cells[3] for cells in rows(browser, body)] == sorted(f1s)
    browser.click(button)
    assert rows(browser, body) == first
    browser.click("#classes .choice button:nth-child(2)")
    assert "conlleval" in browser.ask("document.querySelectorAll('#classes .note')[1].textContent")
    quiet(browser)


def test_intents(browser: Any, intents: ReportData, tmp_path: Path) -> None:
    opened(browser, intents, tmp_path)
    assert intents.confusion is not None
    assert len(rows(browser, "#classes tbody")) == 77
    visible = "[...document.querySelectorAll('#classes tbody tr')].filter((row) => row.offsetHeight).length"
    assert browser.ask(visible) == 20
    browser.click("#classes .more")
    assert browser.ask(visible) == 77
    box = browser.box(".matrix .cells")
    browser.ask("document.querySelector('.matrix').scrollTo(0, 0)")
    browser.settle()
    box = browser.ask("document.querySelector('.matrix .cells').getBoundingClientRect().toJSON()")
    size = box["width"] / 77
    browser.point(box["x"] + 2.5 * size, box["y"] + 1.5 * size)
    browser.settle()
    said = browser.ask("document.querySelector('.tip.shown').innerText").split("\n")
    labels, counts = intents.confusion.labels, intents.confusion.counts
    assert said[:2] == [f"gold: {labels[1]}", f"predicted: {labels[2]}"]
    assert said[2].startswith(f"{counts[1][2]} of {sum(counts[1])} ")
    assert browser.ask("document.querySelectorAll('.matrix .wrong').length") == sum(
        count > 0 for g, row in enumerate(counts) for p, count in enumerate(row) if g != p
    )
    browser.click("#confusion .choice button:nth-child(2)")
    assert browser.ask(
        "document.querySelector('.matrix').scrollHeight <= document.querySelector('.matrix').clientHeight + 1"
    )
    quiet(browser)


def test_filter(browser: Any, chinese: ReportData, tmp_path: Path) -> None:
    opened(browser, chinese, tmp_path)
    assert chinese.mistakes is not None
    wanted = "红楼梦"
    browser.ask(
        f"Object.assign(document.querySelector('input'), {{value: '{wanted}'}}).dispatchEvent(new Event('input'))"
    )
    found = sum(wanted in mistake.text for mistake in chinese.mistakes.worst)
    assert found
    visible = "[...document.querySelectorAll('.mistakes li')].filter((item) => item.offsetHeight).length"
    assert browser.ask(visible) == found
    assert browser.ask("document.querySelector('.mistakes .text').lang") == "zh"
    quiet(browser)


@pytest.mark.parametrize("browser", [PHONE, {**PHONE, "dark": True}], indirect=True)
def test_phone(browser: Any, english: ReportData, chinese: ReportData, intents: ReportData, tmp_path: Path) -> None:
    """Nothing sticks out of the window: only tables, the matrix and the run file scroll, by themselves."""
    for facts in (english, chinese, intents):
        opened(browser, facts, tmp_path)
        assert browser.ask("document.documentElement.scrollWidth") == 390
        quiet(browser)


@pytest.mark.parametrize("browser", [{}, {"dark": True}], indirect=True)
def test_contrast(browser: Any, english: ReportData, tmp_path: Path) -> None:
    """WCAG AA: 4.5 for every text colour on the grounds it stands on."""
    opened(browser, english, tmp_path)
    names = (
        "--text",
        "--quiet",
        "--accent",
        "--gold",
        "--guess",
        "--alarm",
        "--ground",
        "--raised",
        "--heat",
        "--right",
    )
    style = "getComputedStyle(document.documentElement).getPropertyValue"
    colours = {
        name: browser.ask(f"{style.replace('.getPropertyValue', '')}.getPropertyValue('{name}')") for name in names
    }
    for name in ("--text", "--quiet", "--accent", "--gold", "--guess", "--alarm"):
        assert contrast(colours[name], colours["--ground"]) >= 4.5, name
    for ground in ("--raised", "--heat", "--right"):
        assert contrast(colours["--text"], colours[ground]) >= 4.5, ground
    assert contrast(colours["--quiet"], colours["--raised"]) >= 4.5


def contrast(one: str, other: str) -> float:
    lights = sorted((luminance(one), luminance(other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def luminance(colour: str) -> float:
    digits = colour.strip().lstrip("#")
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_of_the_user_is_never_markup(browser: Any, tmp_path: Path) -> None:
    row = MetricRow(NASTY, 0.5, 0.5, 0.5, 3)
    facts = ReportData(
        title=NASTY,
        task="ner",
        tables=(MetricTable(NASTY, (row,), (row,), NASTY),),
        confusion=ConfusionMatrix((NASTY, "b"), [[1, 2], [3, 4]]),
        mistakes=Mistakes((Mistake(NASTY, NASTY, NASTY, (Span(3, 9, NASTY),), (), 0.5, NASTY, NASTY),), 1, 2),
        heads=(HeadTable({NASTY: [[0.5, 0.1]]}, NASTY, NASTY, NASTY),),
        run_file=NASTY,
        warnings=(NASTY,),
    )
    opened(browser, facts, tmp_path)
    assert browser.ask("document.querySelectorAll('img, b, main script').length") == 0
    assert browser.ask("document.querySelector('h1').textContent") == NASTY
    assert browser.ask("document.querySelector('pre').textContent") == NASTY
    assert browser.ask("document.querySelector('.mistakes .mark').textContent") == NASTY[3:9]
    quiet(browser)


def test_offsets_count_code_points(browser: Any, tmp_path: Path) -> None:
    text = "😀😀 王小明在北京😀。"
    mistake = Mistake(
        text, gold_spans=(Span(3, 6, "人"), Span(7, 9, "地")), predicted_spans=(Span(3, 5, "人"), Span(7, 9, "地"))
    )
    opened(browser, ReportData(title="t", task="ner", mistakes=Mistakes((mistake,), 1, 1)), tmp_path)
    marks = browser.ask("[...document.querySelectorAll('.mistakes .mark')].map((m) => [m.className, m.textContent])")
    assert marks == [["mark gold guess", "王小"], ["mark gold", "明"], ["mark both", "北京"]]
    chips = browser.ask("[...document.querySelectorAll('.mistakes .chip')].map((chip) => chip.textContent)")
    assert chips == ["predicted: 人", "gold: 人", "right: 地"]


def test_heads(browser: Any, chinese: ReportData, tmp_path: Path) -> None:
    opened(browser, chinese, tmp_path)
    browser.click("#heads .small:nth-child(2)")
    assert browser.ask("document.querySelector('#heads [aria-pressed=true].small').textContent").startswith("self")
    box = browser.box("#heads .headmap .cells")
    browser.settle()
    browser.point(box["x"] + 10, box["y"] + box["height"] / 4 + 10)
    browser.settle()
    assert browser.ask("document.querySelector('.tip.shown .first').textContent") == "encoder.1.self.0"
    browser.click("#heads .choice button:nth-child(2)")
    assert browser.ask("document.querySelectorAll('#heads .headmap').length") == 1
    quiet(browser)


def test_empty(browser: Any, tmp_path: Path) -> None:
    opened(browser, ReportData(title="nothing yet", task="ner"), tmp_path)
    assert browser.ask("[...document.querySelectorAll('main > section')].map((node) => node.id)") == ["origin"]
    quiet(browser)


def test_paper(browser: Any, intents: ReportData, tmp_path: Path) -> None:
    """Printed in dark mode: light all the same, all rows of the tables."""
    opened(browser, intents, tmp_path)
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    browser.settle()
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        browser.ask("[...document.querySelectorAll('#classes tbody tr')].filter((row) => row.offsetHeight).length")
        == 77
    )
