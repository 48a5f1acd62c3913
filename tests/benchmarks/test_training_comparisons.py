"""The races of training on tiny settings: both sides begin with the same loss, everybody trains, tokens are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import typer

from benchmarks import language_model, nanogpt_baseline, training, translation
from benchmarks.__main__ import BenchTask, _corpus, _train
from benchmarks.attention_baselines import OURS
from multihead.models import LanguageModel
from multihead.tasks.generate import Generate
from multihead.training.setup import set_up
from tests.half_precision import WORKS, LinearDtypes

WORDS = ["a", "dog", "runs", "fast", "over", "the", "green", "hill", "while", "two", "men", "look", "on"]
SMALL = [
    "tokenizer.vocab=300", "model.dim=16", "model.layers=2", "model.heads=2", "model.inner=24", "model.max_length=40",
    "train.batch_tokens=200",
]  # fmt: skip


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    root = tmp_path_factory.mktemp("parallel")
    rows = [[WORDS[(i + j * j) % len(WORDS)] for j in range(2 + i % 7)] for i in range(90)]
    (root / "text.en").write_text("".join(" ".join(row) + "\n" for row in rows))
    (root / "text.de").write_text("".join(" ".join(row[::-1]) + " .\n" for row in rows))
    return [root / "text.en", root / "text.de"]


def test_translators_begin_with_the_same_loss(parallel: list[Path]) -> None:
    pytest.importorskip("transformers")
    changes = [*SMALL, "model.dropout=0.0", f"out={parallel[0].parent}"]
    (setup,), model = set_up(translation.settings(parallel, changes))
    task = setup.task
    windows = [task.encode(values)[0] for values, _ in zip(setup.sides["train"](), range(7), strict=False)]
    total, count = task.loss(model.train(), task.collate(windows))
    batch, real, area = translation.pad_batch(windows, task.pad)
    theirs = translation.build_marian(setup)
    assert theirs.training
    assert theirs.config.dropout == 0.0
    other = translation.smoothed_loss(theirs, batch, 0.1)
    torch.testing.assert_close(total / count, other, atol=1e-4, rtol=0)
    assert real == sum(len(window["tokens"]) + len(window["target"]) for window in windows)
    assert real < area
    # And it is the same step that is timed: gradients agree as well.
    (total / count).backward()
    other.backward()
    ours = model.body.encoder.stem.embedding.weight.grad
    assert ours is not None
    torch.testing.assert_close(ours, theirs.model.shared.weight.grad, atol=1e-5, rtol=1e-3)


def test_translators_train(parallel: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    monkeypatch.setattr(translation, "BATCHES", 3)
    race = translation.make_benchmark(parallel, SMALL)
    ran = {name: run() for name, run in race.loops.items()}
    assert list(ran) == [OURS, translation.TRAINER, translation.TUNED]
    assert all(0 < some.tokens < some.padded for some in ran.values())
    ours, trainer = ran[OURS], ran[translation.TRAINER]
    assert ours.tokens == pytest.approx(trainer.tokens, rel=0.4)
    assert 1 - ours.tokens / ours.padded < 1 - trainer.tokens / trainer.padded
    assert race.bars == {translation.TRAINER: (1.5, 1.5)}


def test_language_models_begin_with_the_same_loss() -> None:
    torch.manual_seed(1)
    model, theirs = LanguageModel(language_model.shape(30)), nanogpt_baseline.NanoGPT(30)
    language_model.copy_weights(model, theirs)
    tokens = torch.randint(0, 30, (3, 1 + nanogpt_baseline.BLOCK))
    batch = {"tokens": tokens, "keep": torch.ones_like(tokens, dtype=torch.bool)}
    total, count = Generate.loss(Generate.__new__(Generate), model.train(), batch)
    wanted = theirs(tokens[:, :-1], tokens[:, 1:].contiguous())
    torch.testing.assert_close(total / count, wanted, atol=1e-4, rtol=0)
    assert int(count) == 3 * nanogpt_baseline.BLOCK
    # What differs is said: a bias in every norm.
    norms = (2 * nanogpt_baseline.LAYERS + 1) * nanogpt_baseline.WIDTH
    assert sum(p.numel() for p in model.parameters()) == norms + sum(p.numel() for p in theirs.parameters())


def test_language_models_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_model, "BATCHES", 2)
    path = tmp_path / "text.txt"
    draw = np.random.Generator(np.random.PCG64(0))
    path.write_text("".join(" ".join(WORDS[i] for i in draw.integers(0, len(WORDS), 8)) + "\n" for _ in range(200)))
    race = language_model.make_benchmark(path)
    monkeypatch.setattr(training, "measure_matmul_speed", lambda: lambda: 1e9)
    report = training.measure(race, 1, lambda _: None)
    assert [line.name for line in report.lines] == [OURS, language_model.THEIRS, language_model.FUSED]
    assert race.loops[OURS]().tokens == race.loops[language_model.THEIRS]().tokens == 2 * 12 * 64
    assert report.lines[1].bar == 1.1
    assert nanogpt_baseline.rate(0) < nanogpt_baseline.rate(99) == pytest.approx(nanogpt_baseline.RATE, rel=0.02)
    assert nanogpt_baseline.rate(nanogpt_baseline.STEPS) == nanogpt_baseline.LEAST


@pytest.mark.skipif(not WORKS.right, reason=f"bf16 here {WORKS.verdict}")
def test_in_bf16_all_are(parallel: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    for module in (language_model, translation):
        monkeypatch.setattr(module, "BATCHES", 1)
    races = (
        language_model.make_benchmark(parallel[0], half=True),
        translation.make_benchmark(parallel, SMALL, half=True),
    )
    for race in races:
        assert race.half
        for run in race.loops.values():
            with LinearDtypes() as seen:
                run()
            assert seen.kinds == {torch.bfloat16}


def test_misuse() -> None:
    for kind, data, model in (
        (BenchTask.mask, [], None),
        (BenchTask.generate, [Path("a"), Path("b")], None),
        (BenchTask.translation, [Path("a"), Path("b"), Path("c")], None),
        (BenchTask.translation, [], Path("m")),
    ):
        with pytest.raises(typer.BadParameter):
            _train(kind, data, model, 1, None, False)
    with pytest.raises(typer.BadParameter, match="not trained on running text"):
        _corpus(BenchTask.ner, [1], None, False)
