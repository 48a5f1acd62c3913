"""Ranking: the planted head comes first by both ways; the cost is counted; what is reused changes no number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from multihead.inspection import ablate
from multihead.metrics import ConfidenceInterval, Difference, Pearson, PerplexityMetric, RougeMetric
from multihead.models import ClassifierReadout, Encoder, EncoderDecoder, ModelConfig, TaskModel
from multihead.pruning import rank
from multihead.pruning.evaluation import (
    encode_rows,
    evaluate_model,
    make_batches,
    max_possible_loss,
    named_score,
    score_loss,
    widen_interval,
)
from multihead.pruning.gradient_importance import HeadGates, freeze_weights
from multihead.pruning.partial_forward import PartialForward
from multihead.tasks import TASKS
from multihead.text.tokenizer import Tokenizer

SMALL = ModelConfig(vocab=37, dim=24, layers=3, heads=4, max_length=64, dropout=0.0)


def test_planted_heads_come_first(planted: Any) -> None:
    found = rank(planted.loaded, planted.rows)
    first = found.effects[0]
    assert first.address == planted.address
    assert first.loss is not None
    assert first.loss.value > 0.3
    assert first.loss.interval.low > 0
    assert found.whole is not None
    assert found.whole.value == 1.0
    assert max(found.effects, key=lambda effect: effect.gradient or 0).address == planted.address
    assert rank(planted.loaded, planted.rows, ["gradient"]).effects[0].address == planted.address
    early = rank(planted.loaded, planted.rows, early=True)
    assert early.effects[0].address == planted.address
    assert early.effects[0].settled


def test_early_stopping_ends_by_the_interval(planted: Any) -> None:
    found = rank(planted.loaded, planted.rows, ["ablation"], early=True)
    near = found.clear
    assert near == pytest.approx(10 / len(planted.rows))  # a share: what ten rows are worth
    for effect in found.effects:
        assert effect.loss is not None
        low, high = effect.loss.interval.low, effect.loss.interval.high
        assert effect.settled == (low > 0 or high < 0 or -near <= low <= high <= near)
        assert effect.settled == (effect.rows < len(planted.rows))
    assert found.cost["ablation"] < 0.4 * rank(planted.loaded, planted.rows, ["ablation"]).cost["ablation"]


def test_a_loss_is_what_two_evaluations_give(planted: Any) -> None:
    loaded, task = planted.loaded, planted.loaded.make_task()
    found = rank(loaded, planted.rows, ["ablation"])
    done = make_batches(task, encode_rows(task, planted.rows))
    whole = evaluate_model(loaded.model, task, done)
    for effect in found.effects:
        with ablate(loaded.model, [effect.address]):
            without = evaluate_model(loaded.model, task, done)
        want = score_loss(whole, without, found.metric)
        assert effect.loss is not None
        assert effect.loss.value == pytest.approx(want.value, abs=1e-9)
        assert effect.loss.interval.low == pytest.approx(want.interval.low, abs=1e-9)


def deep(tokenizer: Tokenizer, rows: list[dict[str, Any]], layers: int, heads: int) -> Any:
    """A model of many heads; what it says is nonsense, what it costs is not."""
    from multihead.inference import Pipeline
    from multihead.models.families import native_config

    torch.manual_seed(0)
    config = replace(SMALL, vocab=len(tokenizer), layers=layers, heads=heads)
    model = TaskModel(Encoder(config), ClassifierReadout(config.dim, 3, dropout=0.0)).eval()
    options = {"size": 32, "overlap": 0}
    return Pipeline(model, native_config(model), tokenizer, labels=["O", "B-X", "I-X"], task="ner", options=options)


@pytest.mark.parametrize("batch_tokens", [64, 4096])
def test_cost_of_6x12_heads(tokenizer: Tokenizer, batch_tokens: int) -> None:
    """At most 45 evaluations exactly, 20 with early stopping, 4 by gradient; counted as blocks run."""
    words = "abcdefgh"
    rows = [
        {"tokens": list(words[: 2 + i % 6]), "tags": ["B-X", "O"] * ((2 + i % 6) // 2) + ["O"] * (i % 2)}
        for i in range(40)
    ]
    loaded = deep(tokenizer, rows, 6, 12)
    blocks: list[int] = []
    for block in loaded.model.body.stack.blocks:
        block.register_forward_hook(lambda module, inputs, output: blocks.append(output.shape[0] * output.shape[1]))
    task = loaded.make_task()
    evaluate_model(loaded.model, task, make_batches(task, encode_rows(task, rows), batch_tokens))
    one = sum(blocks)
    blocks.clear()
    exact = rank(loaded, rows, ["ablation"], batch_tokens=batch_tokens)
    assert sum(blocks) / one == pytest.approx(exact.cost["ablation"])
    assert exact.cost["ablation"] == pytest.approx(43)  # 1 + 12 · (6 + 5 + 4 + 3 + 2 + 1) / 6
    blocks.clear()
    early = rank(loaded, rows, ["ablation"], early=True, batch_tokens=batch_tokens)
    assert sum(blocks) / one == pytest.approx(early.cost["ablation"])
    assert early.cost["ablation"] <= 20
    assert len(early.effects) == 72
    assert min(effect.rows for effect in early.effects) >= 8
    blocks.clear()
    gradient = rank(loaded, rows, ["gradient"], batch_tokens=batch_tokens)
    assert sum(blocks) / one == pytest.approx(1)  # forward; backward counts two
    assert gradient.cost["gradient"] <= 4
    assert all(not module.taps for module in loaded.model.modules() if hasattr(module, "taps"))
    assert all("forward" not in vars(module) for module in loaded.model.modules())


@pytest.mark.parametrize(
    "off",
    [
        ["encoder.1.self.2"],
        ["decoder.1.cross.0"],
        ["decoder.0.self.3", "decoder.0.cross.1"],
        ["encoder.2.self.0", "decoder.2.self.1"],
        ["decoder.2.self.0", "encoder.0.self.1"],
    ],
)
@pytest.mark.parametrize("norm_first", [False, True])
def test_taken_up_again_it_says_what_ablate_says(off: list[str], norm_first: bool) -> None:
    torch.manual_seed(0)
    config = replace(SMALL, norm_first=norm_first)
    model = TaskModel(EncoderDecoder(config), torch.nn.Identity()).eval()
    source, target = torch.randint(0, 37, (2, 7)), torch.randint(0, 37, (2, 5))
    passes = PartialForward(model)

    def call() -> torch.Tensor:
        return model(source, target)

    plain = call()
    assert torch.equal(passes.run_whole(call), plain)
    with ablate(model, off):
        want = call()
    got = passes.run_without(off, call)
    assert (got - want).abs().max() < 1e-5
    assert (got - plain).abs().max() > 1e-3
    assert torch.equal(call(), plain)


def test_a_task_that_runs_the_body_twice_is_run_as_a_whole() -> None:
    torch.manual_seed(0)
    model = TaskModel(Encoder(SMALL), torch.nn.Identity()).eval()
    first, second = torch.randint(0, 37, (2, 7)), torch.randint(0, 37, (2, 5))
    passes = PartialForward(model)

    def call() -> torch.Tensor:
        return model(first).mean(1) - model(second).mean(1)

    plain = passes.run_whole(call)
    one = passes.ran
    with torch.no_grad(), ablate(model, ["encoder.1.self.2"]):
        want = call()
    got = passes.run_without(["encoder.1.self.2"], call)
    assert torch.equal(got, want)
    assert not torch.equal(got, plain)
    assert passes.ran == 2 * one == 2 * 3 * (2 * 7 + 2 * 5)


def test_gradient_is_that_of_the_gate(planted: Any) -> None:
    """Against a difference of two losses, one input at a time."""
    loaded, task = planted.loaded, planted.loaded.make_task()
    rows = encode_rows(task, planted.rows[:3])
    gates = HeadGates(loaded.model, units=True)
    gates.measure(task, rows)
    name, _, head = planted.address.rpartition(".")
    block = next(b for b in loaded.model.body.stack.blocks if name.startswith(b.address))
    total, step = 0.0, 1e-3
    for row in rows:
        losses = []
        for gate in (1 - step, 1 + step):

            def tap(attended: Any, gate: float = gate) -> torch.Tensor:
                mixed = attended.mixed.clone()
                mixed[:, int(head)] *= gate
                return mixed

            block.attention.taps.append(tap)
            with torch.no_grad():
                losses.append(float(task.loss(loaded.model, task.collate(row.windows))[0].double()))
            block.attention.taps.remove(tap)
        total += abs(losses[1] - losses[0]) / (2 * step)
    assert gates.heads()[planted.address] == pytest.approx(total / 3, rel=0.02, abs=1e-4)
    assert gates.rows("encoder.0").shape == gates.rows("encoder.1").shape == (3, 8)


def test_weights_are_asked_again_afterwards() -> None:
    linear = torch.nn.Linear(2, 2)
    linear.bias.requires_grad_(False)
    with freeze_weights(linear):
        assert not linear.weight.requires_grad
    assert linear.weight.requires_grad
    assert not linear.bias.requires_grad


def test_no_change_is_no_proof() -> None:
    same = Difference(0.0, ConfidenceInterval(0.0, 0.0), 1.0)
    assert widen_interval(same, 300, 1.0).interval == ConfidenceInterval(-0.01, 0.01)
    assert widen_interval(same, 300, 100.0).interval == ConfidenceInterval(-1.0, 1.0)
    wide = Difference(0.1, ConfidenceInterval(0.0, 0.2), 0.3)
    assert widen_interval(wide, 300, 1.0) is wide


def test_what_a_row_may_cost() -> None:
    shares, texts, nats = Pearson(replicates=20), RougeMetric(replicates=20), PerplexityMetric(replicates=20)
    shares.add([1, 0, 2], [1, 1, 3])
    texts.add(["a b", "a c"], ["a b", "d d"])
    nats.add([3.0, 4.0], [1, 1])
    assert max_possible_loss(shares, "pearson") == 1.0
    assert max_possible_loss(texts, "rougeL") == pytest.approx(50.0)  # of 100, though it is counted in percent
    assert max_possible_loss(nats, "loss") == 3.5


def test_scores_by_the_end_of_their_name(tokenizer: Tokenizer) -> None:
    tagger = TASKS["ner"](tokenizer, ["O", "B-X", "I-X"]).scorer(1)
    assert named_score(tagger, None) == "strict.f1"
    assert named_score(tagger, "f1") == "strict.f1"
    assert named_score(tagger, "accuracy") == "accuracy"
    with pytest.raises(ValueError, match="unknown score 'bleu'; known: "):
        named_score(tagger, "bleu")


def test_a_model_without_a_task_is_refused(random_body: Any) -> None:
    with pytest.raises(ValueError, match="not trained for a task"):
        rank(random_body("encoder"), [{"text": "a"}])
    with pytest.raises(ValueError, match="ablation, gradient or both"):
        rank(random_body("encoder"), [], ["guess"])
