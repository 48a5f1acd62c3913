"""The bi-encoder: its loss by hand, its windows, its scores, a run, and vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import multihead as mh
from multihead.inference import Pipeline
from multihead.inference.engine import evaluate, predict_rows
from multihead.metrics import Spearman
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import save
from multihead.tasks import TASKS
from multihead.tasks.bi_encoder import BiEncoder, PairScore, RetrievalScorer, find_positive_label, unit_vector
from multihead.tasks.match import Match
from multihead.text.tokenizer import Tokenizer
from multihead.training.loop import TrainSettings, fit
from multihead.training.optimizer import adamw

NAMES = ["Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "王明"]
PLACES = ["Rome", "Oslo", "Lima", "Bonn", "Kyiv", "Bern", "Riga", "北京"]


def rows(count: int = 32) -> list[dict]:
    return [
        {
            "text_a": f"{NAMES[i % 8]} went to {PLACES[i // 8 % 8]}",
            "text_b": f"in {PLACES[i // 8 % 8]} was {NAMES[i % 8]}",
        }
        for i in range(count)
    ]


def make(size: int = 32, **options) -> tuple[TaskModel, BiEncoder]:
    texts = [text for row in rows(64) for text in row.values()]
    tokenizer = Tokenizer.train(texts, "wordpiece", 200)
    kind = TASKS["match"].variant({"kind": "bi", **options})
    task = kind(tokenizer, kind.collect_labels([], **options), size, 4, kind="bi", **options)
    assert isinstance(task, BiEncoder)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab=len(tokenizer), dim=32, layers=1, heads=2, max_length=32, dropout=0.0, positions="learned",
        pad=tokenizer.special["pad"],
    )  # fmt: skip
    return TaskModel(Encoder(config), torch.nn.Identity()), task


class PairWindows(list):
    @property
    def sizes(self):
        return np.array([len(window["tokens"]) for window in self])


def train(model: TaskModel, task: BiEncoder, data: list[dict], steps: int = 60) -> list[float]:
    windows = PairWindows(window for values in data for window in task.encode(values))
    plan = TrainSettings(steps=steps, batch_tokens=1000, warmup=5)
    return [step.loss for step in fit(model, task, windows, adamw(model, 3e-3), plan)]


def by_hand(model: TaskModel, task: BiEncoder, pairs: list[dict], right: list[bool]) -> tuple[float, int]:
    """Each text of a right pair must find its partner among those that are neither a copy of it nor right as well."""
    vectors = [
        [
            torch.nn.functional.normalize(model(torch.tensor([task.tokenizer.encode(row[side]).ids])).mean(1))[0]
            for row in pairs
        ]
        for side in ("text_a", "text_b")
    ]
    texts = [[row[side] for row in pairs] for side in ("text_a", "text_b")]
    total = 0.0
    for near, far in ((0, 1), (1, 0)):
        for i, query in enumerate(vectors[near]):
            if not right[i]:
                continue
            candidates = [
                j for j in range(len(pairs))
                if j == i or not (texts[far][j] == texts[far][i] or (texts[near][j] == texts[near][i] and right[j]))
            ]  # fmt: skip
            scores = torch.stack([query @ vectors[far][j] / 0.05 for j in candidates])
            total += float(torch.logsumexp(scores, 0) - scores[candidates.index(i)])
    return total / 2, sum(right)


@torch.no_grad()
def test_the_loss_by_hand() -> None:
    model, task = make()
    pairs = rows(5)
    batch = task.collate([task.encode(values)[0] for values in pairs])
    assert batch["tokens"].shape[0] == batch["keep"].shape[0] == 10
    loss, count = task.loss(model, batch)
    want, n = by_hand(model, task, pairs, [True] * 5)
    assert (loss.item(), int(count)) == (pytest.approx(want, rel=1e-4), n)


@torch.no_grad()
def test_copies_and_wrong_pairs_in_a_batch() -> None:
    model, task = make(positive="yes")
    pairs = [
        *rows(4),
        rows(4)[0],
        {**rows(4)[1], "text_b": "in Lima was Gus"},
        {"text_a": "Bo", "text_b": rows(4)[2]["text_b"]},
    ]
    labels = ["yes", "yes", "yes", "no", "yes", "no", "yes"]
    pairs = [{**pair, "label": label} for pair, label in zip(pairs, labels, strict=True)]
    loss, count = task.loss(model, task.collate([task.encode(values)[0] for values in pairs]))
    want, n = by_hand(model, task, pairs, [label == "yes" for label in labels])
    assert (loss.item(), int(count)) == (pytest.approx(want, rel=1e-4), n)
    none = [{**pair, "label": "no"} for pair in pairs]
    loss, count = task.loss(model, task.collate([task.encode(values)[0] for values in none]))
    assert (loss.item(), int(count)) == (0.0, 0)


def test_it_learns_to_find_partners() -> None:
    model, task = make()
    losses = train(model, task, rows(64), steps=80)
    assert losses[-1] < losses[0] / 4
    scores = evaluate(model, task, rows(64), 0)
    assert scores.main == "mrr"
    assert scores.result()["mrr"].value > 0.95


def test_it_learns_scores() -> None:
    data = [{**row, "label": float(i % 6)} for i, row in enumerate(rows(24))]
    model, task = make(score=(0.0, 5.0))
    train(model, task, data, steps=150)
    scorer = evaluate(model, task, data, 0)
    assert scorer.main == "spearman"
    assert scorer.result()["spearman"].value > 0.9
    loss, count = task.loss(model, task.collate([task.encode(values)[0] for values in data[:3]]))
    cosines = [p["score"] for _, p in predict_rows(model, task, data[:3])]
    assert loss.item() == pytest.approx(
        sum((c - r["label"] / 5) ** 2 for c, r in zip(cosines, data[:3], strict=True)), abs=1e-4
    )
    assert int(count) == 3
    with pytest.raises(ValueError, match="'high' is not a number"):
        task.encode({**data[0], "label": "high"})


def test_alone_in_a_batch_and_padded() -> None:
    model, task = make()
    data = [*rows(20), {"text_a": "Bo", "text_b": "Ada went to Rome and Oslo and Lima and Bonn"}]
    together = [p["score"] for _, p in predict_rows(model, task, data, batch_tokens=10_000)]
    alone = [p["score"] for row in data for _, p in predict_rows(model, task, [row])]
    assert together == pytest.approx(alone, abs=1e-5)
    swapped = [{"text_a": row["text_b"], "text_b": row["text_a"]} for row in data]
    assert [p["score"] for _, p in predict_rows(model, task, swapped)] == pytest.approx(alone, abs=1e-5)


def test_long_texts_become_windows() -> None:
    model, task = make(size=16)
    long = {"text_a": "Ada went to Rome " * 9, "text_b": "in Rome was Ada"}
    windows = task.encode(long)
    assert len(windows) > 2
    assert all(len(window["tokens"]) <= 32 for window in windows)
    ((_, found),) = predict_rows(model, task, [long])
    assert found["input_info"]["windows"] == len(windows)
    whole = mean_of_windows(model, task, long["text_a"]) @ mean_of_windows(model, task, long["text_b"])
    assert found["score"] == pytest.approx(float(whole), abs=1e-5)
    both = {"text_a": long["text_a"], "text_b": "in Rome was Ada and Bo " * 3}
    assert len(task.tokenize_windows(both["text_b"])) > 1
    assert len(task.encode(both)) == len(windows), "pieces go side by side: no product"
    ((_, found),) = predict_rows(model, task, [both])
    whole = mean_of_windows(model, task, both["text_a"]) @ mean_of_windows(model, task, both["text_b"])
    assert found["score"] == pytest.approx(float(whole), abs=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("label", ["yes", "no"])
def test_pieces_of_one_row_are_not_each_other_s_wrong_partners(label: str) -> None:
    model, task = make(size=16, positive="yes")
    long = {"text_a": "Ada went to Rome " * 9, "text_b": "in Rome was Ada and Bo " * 6, "label": label}
    windows = task.encode(long)
    assert len(windows) > 2
    loss, count = task.loss(model, task.collate(windows))
    assert (loss.item(), int(count)) == (0, len(windows) * (label == "yes")), "alone, a pair has no wrong partner"
    other = task.encode({"text_a": "Cleo went to Bonn", "text_b": "in Bonn was Cleo", "label": "yes"})
    want = np.mean([task.loss(model, task.collate([window, *other]))[0].item() for window in windows])
    together = task.loss(model, task.collate([*windows, *other]))[0].item()
    assert together > want > 0, "other rows are wrong partners as before"


@torch.no_grad()
def mean_of_windows(model: TaskModel, task: BiEncoder, text: str) -> np.ndarray:
    pieces = [model(torch.tensor([piece.ids]))[0].mean(0).numpy() for piece in task.tokenize_windows(text)]
    return unit_vector(np.mean(pieces, axis=0))


def test_ranks_by_hand() -> None:
    """Three queries, one with two right answers; items 0..4 along axes, so that cosines are what we say."""
    items = {f"b{j}": np.eye(6, dtype=np.float32)[j] for j in range(5)}
    queries = {"a0": [0.9, 0.3, 0.1, 0, 0, 0], "a1": [0.5, 0.1, 0.6, 0.7, 0, 0], "a2": [0, 0, 0, 0.1, 0.8, 0]}
    vectors = {name: unit_vector(np.array(vector)) for name, vector in queries.items()}
    scorer = RetrievalScorer("1", 0)
    pairs = [("a0", "b0", 1), ("a1", "b0", 1), ("a1", "b1", 1), ("a2", "b3", 1), ("a2", "b4", 0), ("a0", "b2", 0)]
    for index, (a, b, label) in enumerate(pairs):
        scorer.add({"text_a": a, "text_b": b, "label": label}, PairScore(vectors[a], items[b]), index)
    found = scorer.result()
    assert found["mrr"].value == pytest.approx((1 + 1 / 3 + 1 / 2) / 3)  # a1 finds b3, b2 first, then b0
    assert found["recall@1"].value == pytest.approx(1 / 3)
    assert found["recall@5"].value == 1
    assert scorer.result()["mrr"].value == found["mrr"].value  # asking twice changes nothing


def test_the_query_itself_is_no_answer() -> None:
    same, other = unit_vector(np.array([1.0, 0])), unit_vector(np.array([0.5, 1]))
    scorer = RetrievalScorer(None, 0)
    scorer.add({"text_a": "x", "text_b": "y"}, PairScore(same, other), 0)
    scorer.add({"text_a": "y", "text_b": "x"}, PairScore(other, same), 1)
    assert scorer.result()["mrr"].value == 1


def test_large_sets_are_ranked_in_pools() -> None:
    draw = np.random.default_rng(0)
    scorers = [RetrievalScorer(None, 0, pool) for pool in (7, 1000)]
    for index in range(50):
        vector = unit_vector(draw.normal(size=4))
        for scorer in scorers:
            scorer.add(
                {"text_a": f"a{index}", "text_b": f"b{index}"},
                PairScore(vector, unit_vector(vector + draw.normal(size=4) / 2)),
                index,
            )
            assert len(scorer.pairs) < scorer.pool
    few, all_ = (scorer.result()["mrr"].value for scorer in scorers)
    assert few > all_
    assert all(scorer.metric.bootstrap_sample.samples == 50 for scorer in scorers)


def test_labels_that_a_model_was_not_trained_with_are_heeded() -> None:
    found = []
    for positive in ("1", None):
        scorer = RetrievalScorer(positive, 0, pool=7)
        draw = np.random.default_rng(0)
        for index in range(20):
            values = {"text_a": f"a{index % 9}", "text_b": f"b{index}", "label": str(index % 2)}
            scorer.add(values, PairScore(unit_vector(draw.normal(size=4)), unit_vector(draw.normal(size=4))), index)
        found.append(scorer.result())
    assert found[0] == found[1]


def test_no_right_pair_is_said() -> None:
    scorer = RetrievalScorer("yes", 0)
    scorer.add({"text_a": "a", "text_b": "b", "label": "no"}, PairScore(np.ones(2), np.ones(2)), 0)
    with pytest.raises(ValueError, match="'yes'"):
        scorer.result()


@pytest.mark.parametrize(
    ("labels", "wanted", "found"),
    [
        ("01", None, "1"),
        (["same", "different"], None, "same"),
        (["x"], None, "x"),
        (["x", "y"], "y", "y"),
        (["否", "是"], None, "是"),
    ],
)
def test_which_label_says_yes(labels: list[str], wanted: str | None, found: str) -> None:
    assert find_positive_label([*labels, *labels], wanted) == found


@pytest.mark.parametrize(("labels", "wanted"), [(["x", "y"], None), (["yes", "same"], None), (["x", "y"], "z")])
def test_which_label_says_yes_is_asked(labels: list[str], wanted: str | None) -> None:
    with pytest.raises(ValueError, match=r"match\.positive; labels are: " + ", ".join(sorted(labels))):
        find_positive_label(labels, wanted)


RUN = """
task = "match"
out = "{out}"
[data]
train = "{data}"
[tokenizer]
kind = "wordpiece"
vocab = 200
[model]
dim = 16
layers = 1
heads = 2
max_length = 32
[train]
steps = 12
batch_tokens = 300
save_every = 3
threads = 1
[match]
kind = "bi"
"""


@pytest.mark.parametrize("labelled", [False, True])
def test_a_run_resumes_saves_and_loads(tmp_path: Path, stopped: Any, labelled: bool) -> None:
    data = tmp_path / "pairs.csv"
    lines = [
        f"{row['text_a']},{row['text_b']}" + (",no" if i % 5 == 0 else ",yes") * labelled
        for i, row in enumerate(rows(64))
    ]
    data.write_text("\n".join(["text_a,text_b" + ",label" * labelled, *lines]) + "\n", encoding="utf-8")
    run = stopped(RUN, data)
    assert run.scores["valid"].keys() == {"mrr", "recall@1", "recall@5", "recall@10"}
    assert run.task.columns() == ("text_a", "text_b", "label")[: 2 + labelled]
    assert run.task.options.get("positive") == ("yes" if labelled else None)
    again = mh.load(tmp_path / "whole" / "model")
    assert isinstance(again.make_task(), BiEncoder)
    some = rows(5)
    assert again.predict(some) == [p for _, p in predict_rows(run.model, run.task, some)]
    vectors = again.embed(text for row in some for text in row.values())
    assert (vectors.shape, vectors.dtype) == ((10, 16), np.float32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
    cosines = (vectors[::2] * vectors[1::2]).sum(1)
    assert cosines == pytest.approx([p["score"] for p in again.predict(some)], abs=1e-5)
    assert again.evaluate([{**row, "label": "yes"} for row in some])["recall@10"].value == 1


def test_models_that_give_no_vectors_say_so(tmp_path: Path) -> None:
    model, task = make()
    bare = Pipeline(model, native_config(model), task.tokenizer)
    assert bare.embed(["Ada"]).shape == (1, 32)
    assert bare.embed([]).shape == (0, 32)
    with pytest.raises(ValueError, match="a list of texts"):
        bare.embed("Ada")
    with pytest.raises(ValueError, match="input 1"):
        bare.embed(["Ada", 3])  # type: ignore[list-item]
    other = Pipeline(
        TaskModel(model.body, ClassifierReadout(32, 2)), native_config(model), task.tokenizer, task="classify"
    )
    with pytest.raises(ValueError, match="kind = bi"):
        other.embed(["Ada"])
    save(bare, tmp_path / "body")
    assert np.array_equal(mh.load(tmp_path / "body").embed(["Ada"]), bare.embed(["Ada"]))


def test_the_cross_encoder_is_still_there() -> None:
    assert Match.variant({}) is Match
    assert Match.variant({"kind": "cross"}) is Match


def test_similarity_keeps_count_in_blocks() -> None:
    _, task = make(score=(0.0, 5.0))
    scorer = task.scorer(0)
    draw = np.random.default_rng(0)
    gold, said = draw.uniform(0, 5, 3000), draw.uniform(-1, 1, 3000)
    for index in range(3000):
        scorer.add({"label": gold[index]}, {"score": said[index]}, index)
    want = Spearman(replicates=0)
    want.add(gold, said)
    assert scorer.result()["spearman"].value == pytest.approx(want.result()["spearman"].value)
    assert scorer.add({"label": 5.0}, {"score": 1.0}, 3000)
    assert not scorer.add({"label": 5.0}, {"score": 0.5}, 3001)
