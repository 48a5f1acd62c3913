"""compare, where two models were not trained alike: what can be compared is, with the same numbers as evaluate's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.cli.compare import compare
from multihead.cli.data_arguments import open_reader, rows_to_score
from multihead.inference import Pipeline
from multihead.inference.engine import evaluate
from multihead.models import Decoder, Encoder, LMReadout, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import save
from multihead.text.tokenizer import Tokenizer
from tests.half_precision import WORKS, LinearDtypes

WORDS = [f"w{i}" for i in range(12)]
PAIRS = [(f"w{i} w{i + 1}", f"w{i + (i % 3)} w{i}", int(i % 3 > 0)) for i in range(9)]


def bi(place: Path, seed: int, **options: Any) -> str:
    tokenizer = Tokenizer.train([" ".join(WORDS)], "wordpiece", 60)
    torch.manual_seed(seed)
    config = ModelConfig(vocab=len(tokenizer), dim=8, layers=1, heads=2, max_length=16, dropout=0.0)
    model = TaskModel(Encoder(config), torch.nn.Identity())
    told = {"kind": "bi", "size": 16, "overlap": 0, **options}
    save(Pipeline(model, native_config(model), tokenizer, task="match", options=told), place)
    return str(place)


def said(capsys: pytest.CaptureFixture[str], *given: Any) -> dict[str, Any]:
    compare(*given, json=True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_bi_encoders_with_and_without_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labelled, alone = bi(tmp_path / "a", 0, positive="1"), bi(tmp_path / "b", 1)
    data = tmp_path / "test.csv"
    data.write_text("".join(["text_a,text_b,label\n", *(f"{a},{b},{y}\n" for a, b, y in PAIRS)]))
    rows = [{"text_a": a, "text_b": b, "label": str(y)} for a, b, y in PAIRS]
    values = {}
    for model in (labelled, alone):
        loaded = mh.load(model)
        task = loaded.make_task()
        values[model] = evaluate(loaded.model, task, rows_to_score(open_reader(task, data, []))).result()["mrr"].value
        assert loaded.evaluate(rows)["mrr"].value == values[model]
    blind = mh.load(alone).evaluate({"text_a": a, "text_b": b} for a, b, _ in PAIRS)["mrr"].value
    assert blind != values[alone]
    for first, second in ((labelled, alone), (alone, labelled)):
        found = said(capsys, first, second, data)
        assert [score["value"] for score in found["scores"]] == [values[first], values[second]]
        assert all("label" in row for row in found["shown"])
    odd = tmp_path / "odd.csv"
    odd.write_text("text_a,text_b,label\nw1,w2,x\nw3,w4,y\n")
    with pytest.raises(ValueError, match=r"which match: x, y; write 1 and 0, or"):
        compare(alone, alone, odd)


@pytest.mark.skipif(not WORKS.right, reason=f"bf16 here {WORKS.verdict}")
def test_in_half_precision(tmp_path: Path) -> None:
    models = [bi(tmp_path / name, seed) for seed, name in enumerate("ab")]
    data = tmp_path / "test.csv"
    data.write_text("".join(["text_a,text_b,label\n", *(f"{a},{b},{y}\n" for a, b, y in PAIRS)]))
    for precision, kind in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with LinearDtypes() as products:
            compare(*models, data, json=True, precision=precision)
        assert products.kinds == {kind}


def test_unlike_ways_of_one_task_are_named_with_the_fix(tmp_path: Path) -> None:
    models = bi(tmp_path / "a", 0, positive="1"), bi(tmp_path / "b", 0, score=[0.0, 5.0])
    with pytest.raises(
        ValueError, match=r"a is scored by mrr, .*b by spearman: .* same \[match\] section, or .*evaluate"
    ):
        compare(*models, tmp_path / "none.csv")


def foreteller(place: Path, task: str, vocab: int, size: int = 16) -> str:
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 9, "bpe", vocab)
    torch.manual_seed(0)
    config = ModelConfig(vocab=len(tokenizer), dim=8, layers=1, heads=2, max_length=16, dropout=0.0)
    model = TaskModel(Decoder(config) if task == "generate" else Encoder(config), LMReadout(config))
    special = tokenizer.special
    told = {"start": special["bos"], "stop": [special["eos"]]} if task == "generate" else {}
    options = {"size": size, "overlap": 0, **told}
    save(Pipeline(model, native_config(model), tokenizer, task=task, options=options), place)
    return str(place)


def test_other_tokens_are_compared_by_bits_or_not_at_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = tmp_path / "text.txt"
    data.write_text(" ".join(WORDS * 5) + "\n")
    small, large, short = (
        foreteller(tmp_path / name, "generate", vocab, size)
        for name, vocab, size in (("s", 262, 16), ("l", 290, 16), ("w", 262, 15))
    )
    found = said(capsys, small, large, data)
    assert found["main"] == "bits_per_byte"
    for model, score in zip((small, large), found["scores"], strict=True):
        assert score["value"] == mh.load(model).evaluate([{"text": data.read_text()}])["bits_per_byte"].value
    assert found["difference"] is None
    assert said(capsys, small, small, data)["main"] == "loss"
    other = said(capsys, small, short, data)  # the same tokens, and windows that are none of the other's
    assert (other["main"], other["difference"]) == ("loss", None)
    masks = [foreteller(tmp_path / f"m{vocab}", "mask", vocab) for vocab in (262, 290)]
    with pytest.raises(ValueError, match=r"different tokenizers, so their loss per token .* the same tokenizer, or"):
        compare(*masks, data)
