import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from multihead.metrics import BleuMetric, ConfidenceInterval, EntityMetric, MetricRow, MetricTable, RougeMetric, Score
from multihead.report import ReportData, show, summary
from multihead.report.console import ROOMY, TIGHT, table_views


def printed(facts: ReportData, width: int) -> str:
    out = io.StringIO()
    show(facts, Console(file=out, width=width, color_system=None))
    return out.getvalue()


def test_tables_of_the_article(english: ReportData) -> None:
    text = printed(english, 100)
    tags, lines = english.tables[0], text[text.index("By tag") :].splitlines()
    for row in (*tags.rows, *tags.averages):
        line = next(line for line in lines if line.startswith(f"{row.name} "))
        numbers = [f"{value:.3f}" for value in (row.precision, row.recall, row.f1)]
        assert line.split()[1:4] == numbers
        assert line.split()[-1] == f"{row.support:,}"
        assert row.interval is not None
        assert f"{row.interval.low:.3f} – {row.interval.high:.3f}" in line
    order = [row.name for row in tags.rows]
    assert order == ["B-LOC", "I-LOC", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER", "O"]
    assert "counted strict, IOB2" in text
    score = english.scores["strict.f1"]
    assert score.interval is not None
    assert f"entity F1 {score.value:.3f}" in " ".join(text.split())
    assert f"{score.interval.low:.3f} – {score.interval.high:.3f}" in text


@pytest.mark.parametrize("width", [30, TIGHT, 60, ROOMY, 120])
def test_every_width(english: ReportData, chinese: ReportData, intents: ReportData, width: int) -> None:
    for facts in (english, chinese, intents):
        text = printed(facts, width)
        assert max(cell_len(line) for line in text.splitlines()) <= width
        assert f"{facts.tables[0].rows[0].f1:.3f}" in text  # numbers are the last to go
        least = 100 if facts is intents else ROOMY  # whose names begin alike
        assert ("F1, 95 % interval" in text) == (width >= least)


@pytest.mark.parametrize("width", [30, 100])
def test_signatures_stand_below_the_scores_and_equal_ones_once(width: int) -> None:
    texts, short = BleuMetric("zh", replicates=0), RougeMetric(replicates=0)
    for metric in (texts, short):
        metric.add(["你 好 a"], ["你 好 b"])
    scores = {**texts.result(), **short.result()}
    text = printed(ReportData(title="t", task="translate", scores=scores), width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    told = text.replace("\n", "")
    for name in ("bleu", "chrf"):
        assert str(scores[name].signature) in told
    assert "tok:zh" in told
    assert told.count("by:words|stem:no|refs:best") == 1


def test_same_numbers_are_said_once() -> None:
    spans = EntityMetric(replicates=20)
    spans.add([["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]])
    both = (spans.table("strict"), spans.table("conlleval"))
    assert len(table_views(both)) == 2
    assert "the same numbers counted conlleval" in str(table_views(both)[1])
    spans.add([["O", "B-LOC"]], [["O", "I-LOC"]])  # no entity by one convention, one by the other
    assert "the same numbers" not in str(table_views((spans.table("strict"), spans.table("conlleval")))[1])


def test_names_are_no_markup() -> None:
    row = MetricRow("[red]x[/red]", 1, 1, 1, 2, ConfidenceInterval(float("nan"), float("nan")))
    facts = ReportData(
        title="[bold]", task="t", tables=(MetricTable("[i]", (row,), ()),), warnings=("[/]",), scored_on="[b]"
    )
    text = printed(facts, 80)
    for given in ("[red]x[/red]", "[bold]", "[i]", "warning: [/]", "[b]"):
        assert given in text
    assert "nan" not in text


def test_names_that_begin_alike_are_told_apart() -> None:
    rows = tuple(
        MetricRow(f"top_up_by_card_{end}", 1, 1, 1, 2, ConfidenceInterval(0.5, 1.0)) for end in ("charge", "fee")
    )
    facts = ReportData(title="t", task="t", tables=(MetricTable("classes", rows, ()),))
    narrow, wide = printed(facts, 80), printed(facts, 100)
    for row in rows:
        assert row.name in narrow
        assert row.name in wide
    assert "interval" in wide


def test_summary_is_json(english: ReportData, chinese: ReportData) -> None:
    for facts in (english, chinese):
        numbers = json.loads(json.dumps(summary(facts), allow_nan=False))
        assert numbers["task"] == facts.task
        name, score = next(iter(facts.scores.items()))
        assert numbers["scores"][name]["value"] == score.value
        assert numbers["tables"][0]["rows"][0]["name"] == facts.tables[0].rows[0].name
        assert numbers["lengths"]["truncated"] == 0
        assert "mistakes" not in numbers
    assert summary(chinese)["confusion"]["labels"] == ["负面", "正面"]


def test_score_that_is_undefined() -> None:
    facts = ReportData(title="t", task="t", scores={"auc": Score(float("nan")), "exact": Score(75.314, "percent")})
    assert "75.31" in printed(facts, 80)
    assert summary(facts)["scores"]["auc"]["value"] is None
