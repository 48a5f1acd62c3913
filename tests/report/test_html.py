import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from multihead.metrics import MetricRow, MetricTable
from multihead.report import ConfusionMatrix, FileDigest, HeadTable, Mistake, Mistakes, ReportData, Span, render_report
from multihead.report.html import VIEWS, bundle, escape_json

NASTY = (
    "</script><script>alert(1)</script><!-- <img src=x onerror=alert(1)> \"q\" 's' & \u2028 \u2029 \x00 \udcff 中文😀"
)
VOID = {"meta", "link", "br", "img", "input", "hr"}


class Walk(HTMLParser):
    """Tags closed in order; attributes and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside.append((self.open[-1], data))

    def data(self) -> dict[str, object]:
        """The embedded block; scripts may come in several pieces."""
        place = [tag for tag, _ in self.tags if tag == "script"]
        assert place == ["script", "script"]
        text = "".join(data for tag, data in self.inside if tag == "script")
        found, _ = json.JSONDecoder().raw_decode(text)
        return found


def nasty() -> ReportData:
    span = Span(0, 3, NASTY)
    row = MetricRow(NASTY, 0.5, 0.5, 0.5, 3)
    return ReportData(
        title=NASTY,
        task=NASTY,
        date=NASTY,
        command=NASTY,
        scored_on=NASTY,
        tables=(MetricTable("classes", (row,), (row,), NASTY), MetricTable(NASTY, (row,), (row,))),
        confusion=ConfusionMatrix((NASTY, "b"), [[1, 2], [3, 4]]),
        mistakes=Mistakes((Mistake(NASTY, NASTY, NASTY, (span,), (), 0.5, NASTY, NASTY),), 1, 2),
        heads=(HeadTable({NASTY: [[0.5, 0.1]]}, NASTY, NASTY, NASTY),),
        run_file=NASTY,
        digests=(FileDigest(NASTY, NASTY, NASTY),),
        machine=NASTY,
        warnings=(NASTY,),
    )


def test_page_is_well_formed(english: ReportData, chinese: ReportData, intents: ReportData) -> None:
    for facts in (english, chinese, intents, ReportData(title="empty", task="ner")):
        walk = Walk(render_report(facts))
        assert [tag for tag, _ in walk.tags].count("main") == 1
        assert walk.data()["title"] == facts.title
        assert ("title", facts.title) in walk.inside


def test_nothing_is_fetched(english: ReportData) -> None:
    text = render_report(english)
    assert set(re.findall(r"\w+://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.search(r"@import|url\(|\bsrc\w*=", text.split("<script")[0])
    links = [attributes["href"] for tag, attributes in Walk(text).tags if "href" in attributes]
    assert links == ["data:,"]


def test_views_parse_no_markup() -> None:
    for path in VIEWS.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser", source
        ), path
        assert not re.search(r"\bfetch\(|XMLHttp|localStorage|sessionStorage", source), path


def test_policy_allows_exactly_what_is_there(english: ReportData) -> None:
    text = render_report(english)
    policy = next(a["content"] or "" for _, a in Walk(text).tags if a.get("http-equiv") == "Content-Security-Policy")
    script = text[text.index('<script type="module">') + 22 : text.rindex("</script>")]
    style = text[text.index("<style>") + 7 : text.index("</style>")]
    for part in (script, style):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_text_of_the_user_stays_text() -> None:
    text = render_report(nasty())
    walk = Walk(text)
    assert [tag for tag, _ in walk.tags].count("script") == 2
    assert "img" not in [tag for tag, _ in walk.tags]
    assert walk.data()["run_file"] == NASTY
    assert "\u2028" not in text
    assert "\x00" not in text
    text.encode("utf-8")  # no lone surrogate is left


def test_embedded_is_the_same_data() -> None:
    assert json.loads(escape_json({"a": [NASTY, 1.5, None]})) == {"a": [NASTY, 1.5, None]}
    assert "<" not in escape_json([NASTY])
    with pytest.raises(ValueError, match="not JSON compliant"):
        escape_json(float("nan"))


def test_chinese_survives(chinese: ReportData) -> None:
    text = render_report(chinese)
    assert "酒店与图书评论的情感分类" in text  # as letters, not as escapes
    assert "列名" in text
    assert "数据/测试.tsv:17" in text


def test_size(english: ReportData, chinese: ReportData, intents: ReportData) -> None:
    for facts in (english, chinese, intents):
        assert len(render_report(facts).encode()) < 300_000
    long = tuple(Mistake("长" * 50_000, "a", "b") for _ in range(3000))
    assert len(render_report(ReportData(title="", task="x", mistakes=Mistakes(long, 3000, 3000))).encode()) < 1_000_000


def test_bundle_keeps_modules_apart(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('import { b, c } from "./b-one.js";\nconst x = 1;\nexport const y = x + b + c();\n')
    (tmp_path / "b-one.js").write_text("const x = 2;\nexport const b = x;\nexport function c() { return x; }\n")
    joined = bundle("a.js", tmp_path)
    assert joined.index("$b_one") < joined.index("$a ")
    assert "import" not in joined
    (tmp_path / "b-one.js").write_text('import { y } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js -> b-one\.js -> a\.js"):
        bundle("a.js", tmp_path)
    (tmp_path / "a.js").write_text('import * as all from "./b-one.js";\n')
    with pytest.raises(ValueError, match="can be joined"):
        bundle("a.js", tmp_path)


def test_views_are_modules_too() -> None:
    """The studio serves them as they are: every import names an export that is there."""
    exported = {
        p.name: set(re.findall(r"^export (?:function|const) (\w+)", p.read_text(), re.M)) for p in VIEWS.glob("*.js")
    }
    for path in VIEWS.glob("*.js"):
        for names, source in re.findall(r'^import \{ (.+) \} from "\./(.+)";', path.read_text(), re.MULTILINE):
            assert set(names.split(", ")) <= exported[source], path
            body = path.read_text().split("\n\n", 2)[-1]
            assert all(re.search(rf"\b{name}\b", body) for name in names.split(", ")), f"{path.name}: unused import"
