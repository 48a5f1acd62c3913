"""Made-up but realistic reports: English entities, Chinese sentiment, 77 intents. `python tests/report/fixtures.py
FOLDER` writes the pages and, with Chromium, pictures of them to look at."""

import sys
from pathlib import Path

import numpy as np

from multihead.metrics import ClassificationMetric, EntityMetric, TokenTagMetric
from multihead.report import (
    ConfusionMatrix,
    FileDigest,
    HeadTable,
    LengthHistogram,
    Mistake,
    Mistakes,
    ReportData,
    Span,
    TrainingCurve,
    render_report,
)

KINDS = ("LOC", "MISC", "ORG", "PER")
WORDS = (
    ("Angela Merkel", "PER"), ("visited", ""), ("Beijing", "LOC"), ("before", ""), ("the", ""), ("World Cup", "MISC"),
    ("match", ""), ("of", ""), ("Bayern Munich", "ORG"), ("against", ""), ("South Korea", "LOC"), (".", ""),
)  # fmt: skip
TOPICS = (
    "card_payment", "cash_withdrawal", "bank_transfer", "top_up", "exchange_rate", "direct_debit", "refund",
    "virtual_card", "identity_check", "passcode", "cheque_deposit",
)  # fmt: skip
TROUBLES = (
    "not_recognised", "pending", "fee_charged", "declined", "limit", "wrong_amount_after_currency_conversion", "how_to",
)  # fmt: skip
CHINESE = (
    ("这间酒店的环境和服务态度亦算不错，但房间空间太小，不宜容纳太大件行李；中餐厅的点心也不太好吃。", "正面", "负面"),
    ("推荐所有喜欢《红楼梦》的朋友收藏这本书，当年我为它跑遍了全城的书店！", "正面", "负面"),
    ("键盘右Shift键太小，屏幕亮度不均匀，散热还可以。总体来说：一分钱一分货。", "负面", "正面"),
    (
        "怀着十分激动的心情放映，可是看着看着发现，放映完毕后出现一集米老鼠的动画片😂，真不知道厂家怎么想的",
        "负面",
        "正面",
    ),
    ("房間格調還可以～～但西餐廳令人等得太耐了", "负面", "正面"),
)
RUN = """task = "{task}"
from = "models/minilm"         # a directory, or "hub:owner/name"
out  = "runs/{out}"

[data]
train = "train.{ending}"
test  = "test.{ending}"
{comment}
[train]
epochs = 3
batch_tokens = 4096
lr = 1e-4
seed = 1
"""


def curves(steps: int, best: float, seed: int) -> tuple[TrainingCurve, ...]:
    """Loss falls with noise, the score rises, the rate warms up and decays."""
    rng = np.random.default_rng(seed)
    x = np.arange(1, steps + 1)
    loss = 2.2 * np.exp(-x / (0.12 * steps)) + 0.08 + rng.gamma(2, 0.02, steps) * (1 + 3 * np.exp(-x / (0.2 * steps)))
    at = np.linspace(steps / 12, steps, 12).round()
    valid = best - 0.5 * np.exp(-at / (0.15 * steps)) + rng.normal(0, 0.004, 12)
    rate = 1e-4 * np.minimum(x / (0.1 * steps), (steps - x) / (0.9 * steps))
    return (
        TrainingCurve("training loss", x, loss, "Loss"),
        TrainingCurve("validation loss", at, 0.19 + 1.4 * np.exp(-at / (0.12 * steps)) + 1e-5 * at, "Loss"),
        TrainingCurve("validation score", at, valid, "Score"),
        TrainingCurve("learning rate", x, rate, "Learning rate"),
    )


def heads(layers: int = 6, width: int = 12, seed: int = 3) -> HeadTable:
    """Shares of each head; two heads are cut out."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet((0.6, 0.9, 0.7, 0.8, 1.5, 4), (layers, width))
    names = ("self", "previous", "next", "first", "separator")
    statistics = {"entropy": rng.gamma(4, 0.6, (layers, width))}
    statistics |= {name: shares[..., place] for place, name in enumerate(names)}
    statistics["offset"] = rng.normal(-1, 4, (layers, width))
    for matrix in statistics.values():
        matrix[2, 3] = matrix[-1, -2] = np.nan
    return HeadTable(statistics, note="Mean over 500 sentences of the validation data.")


def lengths(of: str, limit: int, seed: int) -> LengthHistogram:
    drawn = np.random.default_rng(seed).lognormal(3.2, 0.7, 12000).clip(1, limit * 1.3)
    counts, edges = np.histogram(drawn, 40)
    return LengthHistogram(edges, counts, of=of, limit=limit, windowed=float((drawn > limit).mean()), padding=0.031)


def digests(ending: str) -> tuple[FileDigest, ...]:
    files = (f"train.{ending}", f"test.{ending}", "model/model.safetensors")
    notes = ("3.3 MB, 14,041 rows", "0.7 MB, 3,453 rows", "90.9 MB")
    return tuple(
        FileDigest(name, f"{i + 7:x}" * 64, note) for i, (name, note) in enumerate(zip(files, notes, strict=True))
    )


def sentence(rng: np.random.Generator) -> tuple[list[str], list[str], Mistake]:
    """Gold tags, predicted tags, and the same as marked text."""
    order = rng.permutation(len(WORDS) - 1)[: rng.integers(4, 11)]
    text, gold, guess = "", [], []
    spans: tuple[list[Span], list[Span]] = ([], [])
    for place in order:
        phrase, kind = WORDS[place]
        said = kind if rng.random() > 0.12 else str(rng.choice(["", *KINDS]))
        short = bool(kind and said and " " in phrase and rng.random() < 0.1)
        text += " " if text else ""
        words = phrase.split()
        for n, _ in enumerate(words):
            gold.append(f"{'I' if n else 'B'}-{kind}" if kind else "O")
            begin = "B" if n == 0 and rng.random() > 0.04 else "I"  # an I- that begins nothing: conventions differ
            guess.append(f"{begin}-{said}" if said and not (short and n) else "O")
        if kind:
            spans[0].append(Span(len(text), len(text) + len(phrase), kind))
        if said:
            spans[1].append(Span(len(text), len(text) + len(words[0] if short else phrase), said))
        text += phrase
    confidence, line = float(rng.uniform(0.5, 0.999)), int(rng.integers(1, 50000))
    marked = Mistake(
        text + ".", "", "", tuple(spans[0]), tuple(spans[1]), confidence, f"data/conll2003/test.txt:{line}"
    )
    return gold, guess, marked


def english() -> ReportData:
    rng = np.random.default_rng(1)
    tags, spans = TokenTagMetric(replicates=200), EntityMetric(replicates=200)
    every = [sentence(rng) for _ in range(900)]
    tags.add([gold for gold, _, _ in every], [guess for _, guess, _ in every])
    spans.add([gold for gold, _, _ in every], [guess for _, guess, _ in every])
    wrong = [marked for gold, guess, marked in every if gold != guess]
    wrong.sort(key=lambda mistake: -(mistake.confidence or 0))
    first = {name: spans.result()[name] for name in ("strict.f1", "strict.precision", "strict.recall")}
    more = {name: score for name, score in spans.result().items() if name not in first}
    return ReportData(
        title="Named entities in news",
        task="ner",
        date="2025-03-04 14:22",
        command="multihead train run.toml train.lr=1e-4 out=runs/ner",
        scored_on="conll2003/test.txt, 900 sentences",
        scores={**first, "macro_f1": tags.result()["macro_f1"], "accuracy": tags.result()["accuracy"], **more},
        tables=(tags.table(), spans.table("strict"), spans.table("conlleval")),
        curves=curves(1320, 0.91, 1),
        best_step=1100,
        mistakes=Mistakes(tuple(wrong), len(wrong), len(every)),
        lengths=lengths("train", 128, 1),
        heads=(heads(),),
        run_file=RUN.format(task="ner", out="ner", ending="txt", comment=""),
        digests=digests("txt"),
        machine="2 cores, 16 GB, bfloat16 off, torch 2.13.0, multihead 0.1.0",
        warnings=("train.txt and test.txt share 37 sentences (first: train.txt:1204 = test.txt:88)",),
    )


def classified(labels: tuple[str, ...], samples: int, right: float, seed: int) -> ClassificationMetric:
    """Answers that err mostly towards the neighbours of a label."""
    rng, C = np.random.default_rng(seed), len(labels)
    classes = ClassificationMetric(labels, replicates=200)
    gold = rng.integers(0, C, samples)
    skill = np.clip(right + rng.normal(0, 0.06, C), 0.3, 1)[gold]
    guess = np.where(rng.random(samples) < skill, gold, (gold + rng.choice([1, -1, 2, 7, 11], samples)) % C)
    sure = np.clip(rng.beta(8, 1.2, samples) - 0.2 * (gold != guess), 0.4, 0.995)
    chances = np.repeat(((1 - sure) / (C - 1))[:, None], C, axis=1)
    chances[np.arange(samples), guess] = sure
    classes.add(gold, guess, chances)
    return classes


def chinese() -> ReportData:
    labels = ("负面", "正面")
    classes = classified(labels, 1200, 0.88, 2)
    rng = np.random.default_rng(2)
    wrong = tuple(
        Mistake(
            text * (1 + 3 * (n % 4 == 0)),
            gold,
            guess,
            confidence=0.99 - 0.004 * n,
            place=f"数据/测试.tsv:{17 + 31 * n}",
        )
        for n in range(60)
        for text, gold, guess in [CHINESE[int(rng.integers(len(CHINESE)))]]
    )
    return ReportData(
        title="酒店与图书评论的情感分类",
        task="classify",
        date="2025-03-04 15:02",
        command="multihead train --task classify --data 数据/训练.tsv",
        scored_on="数据/测试.tsv, 1,200 条评论",
        scores=classes.result(),
        tables=(classes.table(),),
        confusion=ConfusionMatrix(labels, classes.confusion()),
        curves=curves(90, 0.88, 2),
        best_step=90,
        mistakes=Mistakes(wrong, 144, 1200),
        calibration=classes.bins(),
        lengths=lengths("训练.tsv", 256, 2),
        heads=(heads(4, 4), HeadTable(heads(4, 4, 5).statistics, kind="cross")),
        run_file=RUN.format(task="classify", out="情感", ending="tsv", comment='text = "评论"   # 列名\n'),
        digests=digests("tsv"),
        machine="4 cores, 8 GB",
    )


def intents() -> ReportData:
    labels = tuple(f"{topic}_{trouble}" for topic in TOPICS for trouble in TROUBLES)
    classes = classified(labels, 3080, 0.91, 4)
    rng = np.random.default_rng(4)
    pairs = [(g, p) for g, row in enumerate(classes.confusion()) for p, n in enumerate(row) for _ in range(n) if g != p]
    wrong = tuple(
        Mistake(f"Why was my {labels[g].replace('_', ' ')}? I did it {rng.integers(2, 9)} days ago.",
                labels[g], labels[p], confidence=float(c), place=f"banking77/test.csv:{int(rng.integers(2, 3081))}")
        for (g, p), c in zip(pairs, sorted(rng.uniform(0.3, 0.99, len(pairs)), reverse=True), strict=True)
    )  # fmt: skip
    return ReportData(
        title="77 intents of bank customers",
        task="classify",
        date="2025-03-04 16:40",
        command="multihead train recipes/banking77.toml",
        scored_on="banking77/test.csv, 3,080 questions",
        scores=classes.result(),
        tables=(classes.table(),),
        confusion=ConfusionMatrix(labels, classes.confusion()),
        curves=curves(4000, 0.93, 4),
        best_step=3666,
        mistakes=Mistakes(wrong, len(wrong), 3080),
        calibration=classes.bins(),
        lengths=lengths("train.csv", 64, 4),
        run_file=RUN.format(task="classify", out="banking77", ending="csv", comment=""),
        digests=digests("csv"),
        machine="2 cores, 16 GB",
    )


if __name__ == "__main__":
    from chromium import Browser, found

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for make in (english, chinese, intents):
        path = folder / f"{make.__name__}.html"
        path.write_text(render_report(make()), encoding="utf-8")
        if (program := found()) is None:
            continue
        for mode in ("light", "dark"):
            for name, width in (("wide", 1280), ("phone", 390)):
                with Browser(program, width=width, dark=mode == "dark") as browser:
                    browser.open(path.absolute().as_uri())
                    (folder / f"{make.__name__}-{mode}-{name}.png").write_bytes(browser.picture())
