"""Pruning under a budget, its bill, and undoing it byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import multihead as mh
from multihead.attention.multihead import merge
from multihead.data.splits import is_valid
from multihead.inspection import numbers
from multihead.metrics import ConfidenceInterval, Difference, Score
from multihead.models import ModelConfig
from multihead.pretrained import create
from multihead.pruning import PruningBudget, finetuning_run, pad_pruned_model, prune, undo
from multihead.pruning.activation_stats import measure_moments
from multihead.pruning.evaluation import EncodedBatches, EncodedRow, encode_rows
from multihead.pruning.prune import split_halves
from multihead.pruning.search import PruningSearch, PruningStep, safety_factor, select_step
from multihead.pruning.surgery import PruningPlan
from multihead.text.tokenizer import Tokenizer


def files(directory: Path) -> dict[str, bytes]:
    return {p.relative_to(directory).as_posix(): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


@pytest.fixture
def parent(planted: Any, tmp_path: Path) -> Path:
    mh.save(planted.loaded, tmp_path / "parent")
    (tmp_path / "parent" / "README.md").write_text("# a card\n")
    return tmp_path / "parent"


def test_prune_and_undo(planted: Any, parent: Path, tmp_path: Path) -> None:
    out, seen = tmp_path / "small", []
    done = prune(parent, planted.rows, out, PruningBudget.read(None, "50%"), on_step=seen.append)
    assert len(done.off) == 3
    assert planted.address not in done.off
    assert done.held == ""
    assert [point.heads for point in seen] == sorted((point.heads for point in seen), reverse=True)
    small, whole = mh.load(out), mh.load(parent)
    assert sum(len(mine) for mine in numbers(small.model).values()) == 3
    assert small.pruned["heads"] == sorted(done.off)
    assert done.bill.before.heads == 6
    assert done.bill.after.heads == 3
    assert done.bill.after.parameters == sum(p.numel() for p in small.model.parameters())
    assert 0 < done.bill.flops_saved < 1
    assert done.bill.latency > 0
    assert done.bill.scores[0].value == 1.0
    assert done.bill.rows + len(split_halves(planted.rows)[0]) == len(planted.rows)
    metric = done.bill.metric
    scored = small.evaluate(split_halves(planted.rows)[1])[metric].value
    assert scored == pytest.approx(done.bill.scores[1].value)
    texts = [row.get("text") or " ".join(row["tokens"]) for row in planted.rows[:5]]
    assert len(small.predict(texts)) == 5
    before = files(parent)
    shutil.rmtree(parent)  # it must not be needed
    assert set(undo(out, tmp_path / "again")) == set(before)
    assert files(tmp_path / "again") == before
    assert torch.equal(
        whole.model.body.stack.blocks[0].attention.q.weight,
        mh.load(tmp_path / "again").model.body.stack.blocks[0].attention.q.weight,
    )


def test_a_budget_that_holds_and_one_that_cannot(planted: Any, parent: Path, tmp_path: Path) -> None:
    rows = planted.rows * 12  # no row changes: with few of them, that would be no proof
    for number, row in enumerate(rows):  # the text decides which half it is in
        rows[number] = dict(row)
    judge = [dict(row) for row in rows]
    done = prune(parent, rows, tmp_path / "a", PruningBudget.read("-1", None), heldout=judge)
    assert done.held == "held"
    assert done.off
    assert planted.address not in done.off
    assert done.bill.loss.value <= 0.01
    assert done.bill.rows == len(judge)
    with pytest.raises(ValueError, match=r"nothing can be removed safely within 0\.1 points"):
        prune(parent, planted.rows, tmp_path / "b", PruningBudget.read("-0.1", None), heldout=planted.rows)
    with pytest.raises(ValueError, match="no usable row"):
        prune(parent, planted.rows, tmp_path / "b", PruningBudget.read("-0.1", None), heldout=[])
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("fold", [True, False])
def test_a_half_is_scored_with_what_the_other_half_says(planted: Any, fold: bool) -> None:
    loaded, task = planted.loaded, planted.loaded.make_task()
    rows = encode_rows(task, planted.rows)
    search = PruningSearch(loaded.model, task, rows, "strict.f1", fold=fold)
    sides = [[row.index for row in done.rows] for done in search.sides]
    assert sorted(sides[0] + sides[1]) == list(range(len(rows)))
    assert abs(len(sides[0]) - len(sides[1])) <= len(rows) // 20
    if not fold:
        assert search.moments is None
        assert search.others == [None, None]
        return
    other = measure_moments(loaded.model, task, [rows[i] for i in sides[1]])
    both = measure_moments(loaded.model, task, rows)
    assert search.moments is not None
    assert search.others[0] is not None
    for name, moment in both.items():
        torch.testing.assert_close(search.moments[name].mean, moment.mean)
        torch.testing.assert_close(search.moments[name].spread, moment.spread, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(search.others[0][name].spread, other[name].spread, rtol=1e-4, atol=1e-6)


def test_the_choice_is_wary_of_other_rows() -> None:
    """The first step that other rows may find too dear ends it."""

    def point(flops: float, value: float, high: float) -> PruningStep:
        loss = Difference(value, ConfidenceInterval(2 * value - high, high, 0.95), 0.5)
        return PruningStep((), PruningPlan(units={"encoder.0": (int(100 * flops),)}), 1.0, flops, Score(0.9), loss)

    curve = [point(1, 0, 0.003), point(0.9, 0.001, 0.003), point(0.8, 0.001, 0.004), point(0.7, 0.0005, 0.001)]
    assert [p.upper_bound(2.0) for p in curve] == pytest.approx([0.3, 0.5, 0.7, 0.15])

    class FlopsCurve:
        by_flops = True
        sides = (EncodedBatches([EncodedRow({}, [], 0)] * 100, [], []),)

        def points(self, keep: float) -> Iterator[PruningStep]:
            return iter(curve)

    best, seen = select_step(cast("PruningSearch", FlopsCurve()), PruningBudget(points=0.5), judging=100)
    assert best.flops == 0.9
    assert len(seen) == len(curve)
    assert select_step(cast("PruningSearch", FlopsCurve()), PruningBudget(points=0.5), judging=20)[0].flops == 1.0
    assert select_step(cast("PruningSearch", FlopsCurve()), PruningBudget(keep=0.7), judging=100)[0].flops == 0.7


@pytest.mark.parametrize(("choosing", "judging"), [(500, 500), (2000, 500), (500, 3000)])
def test_wary_choices_hold_in_nine_of_ten_cases(choosing: int, judging: int) -> None:
    """Of a loss that lies, as seen by the rows that choose, just within the budget."""
    draw = np.random.Generator(np.random.PCG64(0))
    mine, theirs = 1 / choosing**0.5, 1 / judging**0.5  # errors of the two estimates
    seen = 0.3 - safety_factor(choosing, judging) * 1.96 * mine  # the budget is 0.3
    true = seen + mine * draw.standard_normal(20000)
    held = true + theirs * draw.standard_normal(20000) + 1.96 * theirs <= 0.3
    assert held.mean() == pytest.approx(0.9, abs=0.01)


def test_a_broken_budget_writes_nothing(planted_previous: Any, tmp_path: Path) -> None:
    """Two heads are needed, one by the rows that choose, the other by the rows that judge."""
    loaded = planted_previous.loaded
    attention = loaded.model.body.stack.blocks[1].attention
    K, V = attention.key_dims[0], len(loaded.tokenizer)
    for linear in (attention.q, attention.k, attention.v):  # head 0: as head 2, but it looks at the next token
        linear.weight.data[:K], linear.bias.data[:K] = linear.weight.data[2 * K :], linear.bias.data[2 * K :]
    attention.q.weight.data[:K] = 0
    for p in range(15):
        attention.q.weight.data[p + 1, V + p] = 3.0
    attention.out.weight.data[:, :K] = attention.out.weight.data[:, 2 * K :]
    mh.save(loaded, tmp_path / "parent")
    words = [["defghijkl"[(i + j) % 9] for j in range(3 + i % 5)] for i in range(400)]
    last = [{"tokens": [*w, "a"], "tags": [*["O"] * (len(w) - 1), "B-X", "O"]} for w in words]
    first = [{"tokens": ["a", *w], "tags": ["O", "B-X", *["O"] * (len(w) - 1)]} for w in words]
    assert loaded.evaluate(last + first)["strict.f1"].value == 1.0
    done = prune(tmp_path / "parent", last, tmp_path / "a", PruningBudget.read("f1 -1", None), heldout=first)
    assert "encoder.1.self.2" in done.off
    assert "encoder.1.self.0" not in done.off
    assert done.curve[-1].loss.value == 0.0  # on the rows that choose
    assert done.held == "broken"
    assert done.bill.metric == "strict.f1"
    assert done.bill.loss.value == 1.0
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("columns", [False, True])
def test_units_and_heads_of_a_family(tokenizer: Tokenizer, tmp_path: Path, columns: bool) -> None:
    """A BERT: pruned it is in our layout, padded it is a BERT again, with the same logits in transformers."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = ModelConfig(
        vocab=len(tokenizer), max_length=24, dim=24, layers=3, heads=4, inner=96, activation="gelu", norm_eps=1e-12,
        positions="learned", embed_norm=True, token_types=2, pad=0, dropout=0.1, attention_dropout=0.1,
    )  # fmt: skip
    made = create("bert", "ForTokenClassification", encoder=config, labels=["O", "B-X", "I-X"], tokenizer=tokenizer)
    made.task, made.options = "ner", {"size": 24, "overlap": 4}
    for parameter in made.model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    mh.save(made, tmp_path / "bert")
    rows = [{"tokens": list("abcdefgh"[i % 5 :]), "tags": ["B-X", "O"] * 4} for i in range(12)]
    rows = [{"tokens": row["tokens"], "tags": row["tags"][: len(row["tokens"])], "id": i} for i, row in enumerate(rows)]
    out = tmp_path / "small"
    done = prune(
        tmp_path / "bert", rows, out, PruningBudget.read(None, "60%"), heldout=rows, ffn=True, head_width=columns
    )
    assert done.bill.after.flops / done.bill.before.flops == pytest.approx(0.6, abs=0.05)
    assert done.units > 0
    assert (done.columns > 0) == columns
    assert done.bill.after.units == 3 * 96 - done.units
    small = mh.load(out)
    widths = small.model.body.config.ffn_widths
    assert widths is not None
    assert all(width % 16 == 0 for width in widths)
    assert (tmp_path / "small" / "config.json").read_text().count('"model_type": "multihead"') == 1
    tokens = torch.randint(5, len(tokenizer), (2, 9))
    with pytest.raises(ValueError, match="cannot be saved for transformers"):
        mh.save(small, tmp_path / "no", family=True)
    whole = pad_pruned_model(small)
    mh.save(whole, tmp_path / "padded", family=True)
    theirs = transformers.AutoModelForTokenClassification.from_pretrained(tmp_path / "padded").eval()
    with torch.no_grad():
        got = small.model(tokens)
        assert (theirs(tokens).logits - got).abs().max() < 1e-5
        assert (whole.model(tokens) - got).abs().max() < 1e-5
    before = files(tmp_path / "bert")
    undo(out, tmp_path / "again")
    assert files(tmp_path / "again") == before
    # and once more, from what was pruned already
    prune(out, rows, tmp_path / "smaller", PruningBudget.read(None, "70%"), heldout=rows, ffn=True)
    less = mh.load(tmp_path / "smaller")
    assert pad_pruned_model(less).architecture == "BertForTokenClassification"
    undo(tmp_path / "smaller", tmp_path / "small again")
    assert files(tmp_path / "small again") == files(out)


def test_half_precision_comes_back_as_it_was(planted: Any, tmp_path: Path) -> None:
    half = replace(planted.loaded, model=planted.loaded.model.half())
    mh.save(half, tmp_path / "parent")
    planted.loaded.model.float()
    prune(tmp_path / "parent", planted.rows, tmp_path / "small", PruningBudget.read(None, "50%"))
    stored = mh.load(tmp_path / "small", dtype=None).model
    assert next(stored.parameters()).dtype == torch.float16
    undo(tmp_path / "small", tmp_path / "again")
    assert files(tmp_path / "again") == files(tmp_path / "parent")


def test_trained_it_cannot_be_undone(planted: Any, parent: Path, tmp_path: Path) -> None:
    out = tmp_path / "small"
    prune(parent, planted.rows, out, PruningBudget.read(None, "50%"))
    task = planted.loaded.task
    lines = [
        json.dumps({k: v for k, v in row.items() if k in ("tokens", "tags", "text", "label")}) for row in planted.rows
    ]
    (tmp_path / "train.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "run.toml").write_text(
        f'task = "{task}"\nout = "{tmp_path}/run"\n[data]\ntrain = "{tmp_path}/train.jsonl"\n'
        f'valid = "{tmp_path}/train.jsonl"\n[window]\nsize = 16\noverlap = 0\n'
        "[train]\nsteps = 3\nlr = 1e-4\nthreads = 1\n"
    )
    training = finetuning_run(out, tmp_path / "run.toml")
    start = training.model.readout.scores.weight.detach().clone()
    assert torch.equal(start, mh.load(out).model.readout.scores.weight)
    for _ in training:
        pass
    scores = training.finish(replicates=0)
    assert scores["valid"].result()[scores["valid"].main].value > 0.6  # it went on from where it stood
    model = mh.load(tmp_path / "run" / "model")
    assert numbers(model.model) == numbers(mh.load(out).model)
    with pytest.raises(ValueError, match="was trained or saved again after pruning"):
        undo(tmp_path / "run" / "model", tmp_path / "again")
    # Weights that were changed in place are found out too.
    changed = mh.load(out, dtype=None)
    changed.model.readout.scores.bias.data += 1
    mh.save(changed, out)
    with pytest.raises(ValueError, match="changed after pruning"):
        undo(out, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    with pytest.raises(ValueError, match="not a pruned model"):
        undo(parent, tmp_path / "again")


@pytest.mark.parametrize(
    ("budget", "keep", "message"),
    [
        (None, None, "one of them"),
        ("f1 -1", "50%", "one of them"),
        ("f1", None, "not of the form"),
        (None, "much", "not a share"),
        (None, "0%", "outside"),
        (None, "140%", "outside"),
    ],
)
def test_what_cannot_be_read_is_said(budget: str | None, keep: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PruningBudget.read(budget, keep)


def test_budgets_as_they_are_typed() -> None:
    assert PruningBudget.read("f1 -0.5", None) == PruningBudget("f1", 0.5)
    assert PruningBudget.read("-0.5", None) == PruningBudget(None, 0.5)
    assert PruningBudget.read("accuracy 1%", None) == PruningBudget("accuracy", 1.0)
    assert PruningBudget.read(None, "60%") == PruningBudget(keep=0.6)
    assert PruningBudget.read(None, "0.6") == PruningBudget(keep=0.6)


def test_too_little_cannot_stay(planted: Any, parent: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 33% must remain: every attention keeps a head"):
        prune(parent, planted.rows, tmp_path / "small", PruningBudget.read(None, "10%"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    with pytest.raises(ValueError, match="not an empty directory"):
        prune(parent, planted.rows, tmp_path / "full", PruningBudget.read(None, "50%"))


def test_halves_are_chosen_by_text() -> None:
    rows = [{"text": f"sentence {i}", "label": "x"} for i in range(200)] * 2
    choosing, judging = split_halves(rows)
    assert 120 < len(choosing) < 280
    assert not {row["text"] for row in choosing} & {row["text"] for row in judging}
    with pytest.raises(ValueError, match="too few rows"):
        split_halves(rows[:1])


def test_the_validation_split_of_training_has_two_halves() -> None:
    rows = [{"text": f"text {i}"} for i in range(2000) if is_valid(f"text {i}")]
    sides = split_halves(rows)
    assert min(len(side) for side in sides) > 0.4 * len(rows)


def test_moments_are_those_of_the_real_tokens(planted_previous: Any) -> None:
    """Beside a plain float64 mean of every row read alone, without padding."""
    loaded, rows = planted_previous.loaded, planted_previous.rows[:20]
    task, model = loaded.make_task(), loaded.model
    ready = encode_rows(task, rows)
    found = measure_moments(model, task, ready)
    name, block = "encoder.1.self", model.body.stack.blocks[1]
    heads: list[torch.Tensor] = []
    units: list[torch.Tensor] = []

    def tap(attended: Any) -> torch.Tensor:
        heads.append(attended.mixed[0].double())
        return attended.mixed

    block.attention.taps.append(tap)
    hook = block.feed_forward.down.register_forward_pre_hook(lambda m, x: units.append(x[0][0].double()))
    with torch.no_grad():
        for row in ready:
            task.logits(model, task.collate(row.windows))
    hook.remove()
    block.attention.taps.remove(tap)
    sides = {name: merge(torch.cat(heads, 1)[None], block.attention.value_dims)[0], "encoder.1": torch.cat(units)}
    for place, rows_ in sides.items():
        got = found[place]
        assert got.spread is not None
        torch.testing.assert_close(got.mean, rows_.mean(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(got.spread, torch.cov(rows_.T, correction=0), rtol=1e-4, atol=1e-4)


def test_the_whole_model_is_within_every_budget() -> None:
    """Of few rows, three may always have been missed; that was held against the model itself, and nothing could go."""

    def point(heads: float, value: float, high: float) -> PruningStep:
        plan = PruningPlan() if heads == 1 else PruningPlan(heads={"encoder.0.self": (0,)})
        return PruningStep(
            (), plan, heads, heads, Score(3.0, "number", "lower"), Difference(value, ConfidenceInterval(0, high), 0.5)
        )

    class HeadsCurve:
        by_flops = False
        sides = (EncodedBatches([EncodedRow({}, [], 0)] * 20, [], []),)

        def points(self, keep: float) -> Iterator[PruningStep]:
            return iter([point(1, 0, 0.15), point(0.5, -0.01, 0.0)])

    assert select_step(cast("PruningSearch", HeadsCurve()), PruningBudget(points=0.1), judging=20)[0].heads == 0.5
