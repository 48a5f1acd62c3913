"""`python -m benchmarks train` on a small model: everybody trains, tokens are counted, bars are judged."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import ner, training
from benchmarks.attention_baselines import OURS
from benchmarks.timing import Ratio
from benchmarks.training import Benchmark, RoundResult, TrainingReport, TrainingResult, measure


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    root = tmp_path_factory.mktemp("race")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]
    (root / "vocab.txt").write_text("\n".join(words) + "\n")
    transformers.BertTokenizerFast(vocab_file=str(root / "vocab.txt")).save_pretrained(root)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    transformers.BertModel(config).save_pretrained(root)
    sentences = [[words[5 + (i + j) % 10] for j in range(2 + i % 9)] for i in range(200)]
    lines = ["".join(f"{word}\t{'B-X' if word == 'a' else 'O'}\n" for word in sentence) for sentence in sentences]
    (root / "train.bio.tsv").write_text("\n".join(lines))
    return ner.make_benchmark(root, root / "train.bio.tsv")


def test_everybody_trains_on_as_many_tokens(race: Benchmark) -> None:
    torch.manual_seed(0)
    ran = {name: run() for name, run in race.loops.items()}
    assert list(ran) == [OURS, ner.TRAINER, ner.TUNED]
    for some in ran.values():
        assert 0 < some.tokens <= some.padded
        assert some.seconds > 0
    # ROWS sentences on average, or the same number of tokens: a mean of 8 with the special ones.
    ours, trainer = ran[OURS], ran[ner.TRAINER]
    assert ours.tokens == pytest.approx(trainer.tokens, rel=0.3)
    assert 1 - ours.tokens / ours.padded < 1 - trainer.tokens / trainer.padded


def test_report_counts_what_was_run() -> None:
    turns = {OURS: 0, "theirs": 0}

    def loop(name: str, seconds: float) -> RoundResult:
        turns[name] += 1
        return RoundResult(100, 125, seconds)

    loops = {OURS: lambda: loop(OURS, 0.5), "theirs": lambda: loop("theirs", 1.0)}
    report = measure(
        Benchmark("made", "made up", loops, {"theirs": (1.8, 3.0)}, lambda tokens: 1e9 * tokens), 3, lambda _: None
    )
    ours, theirs = report.lines
    assert turns == {OURS: 4, "theirs": 4}  # one to get warm
    assert (ours.tokens_per_second, theirs.tokens_per_second) == (200, 100)
    assert ours.padding == pytest.approx(0.2)
    assert ours.share == pytest.approx(125e9 / 0.5 / (report.gigaflops * 1e9))
    assert theirs.pace is not None
    assert 1 / theirs.pace.median == pytest.approx(2)
    assert report.holds


@pytest.mark.parametrize(("median", "holds"), [(0.5, True), (0.6, False)])
def test_a_bar_is_judged_by_the_median(median: float, holds: bool) -> None:
    line = TrainingResult("theirs", 1.0, 0.0, 0.5, Ratio(0.4, median, 0.3, 0.7, 0.9), 1.8, math.inf)
    assert line.holds is holds


def test_the_table_is_whole_in_80_columns() -> None:
    pace = Ratio(0.333, 0.321, 0.312, 0.377, 0.95)
    lines = [TrainingResult("ours", 22415.0, 0.624, 0.75, None, None, None)]
    lines += [
        TrainingResult("tuned loop, transformers", 20062.0, 0.624, 0.63, pace, 1.15, aim) for aim in (1.15, math.inf)
    ]
    console = Console(width=80, record=True, file=io.StringIO())
    training.show(TrainingReport("generate", "made", "a machine", 200.0, 6, lines), console)
    text = console.export_text()
    for part in ("3.12 (2.65–3.21)", "≥ 1.15  aim", "≥ 1.15   ok", "of matrix products"):
        assert part in text


def test_other_families_are_refused(tmp_path: Path) -> None:
    from multihead.models import ModelConfig
    from multihead.pretrained import create, save

    save(
        create(
            "gpt2",
            "LMHeadModel",
            decoder=ModelConfig(
                vocab=20,
                dim=8,
                layers=1,
                heads=2,
                positions="learned",
                max_length=8,
                activation="gelu_tanh",
                norm_first=True,
            ),
        ),
        tmp_path,
    )
    with pytest.raises(ValueError, match="run on a BERT"):
        ner.make_benchmark(tmp_path, tmp_path / "none")
    assert training.measure_matmul_speed(8, 8, 8)() > 0
