"""The object that `load` gives: called, watched, ablated, printed; and the Python of the docs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

import multihead as mh
from multihead.inference import Pipeline
from multihead.io.html import html_table
from multihead.models import ClassifierReadout, Encoder, LanguageModel, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import save
from multihead.text.tokenizer import Tokenizer

ROOT = Path(__file__).parents[2]
TEXTS = ["Angela Merkel visited Beijing.", "Rome", "Angela visited Rome."]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


@pytest.fixture(scope="module")
def tagger() -> Pipeline:
    """A small tagger with random weights, with the layers and heads that the docs name."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.train(TEXTS, "char", 60)
    config = ModelConfig(
        vocab=len(tokenizer), dim=24, layers=3, heads=4, max_length=48, positions="learned", token_types=2,
        pad=tokenizer.special["pad"],
    )  # fmt: skip
    model = TaskModel(Encoder(config), ClassifierReadout(24, len(TAGS))).eval()
    for parameter in model.parameters():
        parameter.data.normal_(std=0.5)
    return Pipeline(model, native_config(model), tokenizer, labels=TAGS, task="ner", options={"size": 48, "overlap": 8})


def test_one_input_gives_one_prediction_a_list_a_list_an_iterator_an_iterator(tagger: Pipeline) -> None:
    every = tagger.predict(TEXTS)
    assert tagger(TEXTS) == every
    assert tagger({"text": TEXTS[0]}) == tagger.predict(TEXTS[:1])[0]
    lazy = tagger(iter(TEXTS))
    assert not isinstance(lazy, list)
    assert [set(prediction) for prediction in lazy] == [set(prediction) for prediction in every]


@pytest.mark.parametrize("watch", [lambda nlp: nlp.watch(), mh.watch, lambda nlp: mh.watch(nlp.model)])
def test_recordings_are_in_the_order_of_the_inputs(tagger: Pipeline, watch) -> None:
    with watch(tagger) as recording:
        tagger(TEXTS)
    alone = []
    for text in TEXTS:
        with watch(tagger) as single:
            tagger(text)
        alone.append(single[0])
    assert [recorded.tokens for recorded in recording] == [recorded.tokens for recorded in alone]
    weights = recording[1].weights("encoder.2.self.3")
    assert torch.equal(weights, alone[1].weights("encoder.2.self.3"))


def test_ablation_changes_the_answer_and_ends(tagger: Pipeline) -> None:
    scores = [torch.tensor([e["score"] for e in tagger(TEXTS[0])["entities"]])]
    with tagger.ablate([f"encoder.{layer}.self.{head}" for layer in range(3) for head in range(4)]):
        scores.append(torch.tensor([e["score"] for e in tagger(TEXTS[0])["entities"]]))
    with mh.ablate(tagger, ["encoder.0.self.0"]):
        pass
    scores.append(torch.tensor([e["score"] for e in tagger(TEXTS[0])["entities"]]))
    assert torch.equal(scores[0], scores[2])
    assert not torch.equal(scores[0], scores[1])


def test_it_prints_itself_in_one_short_line(tagger: Pipeline) -> None:
    assert re.fullmatch(r"<Pipeline ner: 3 encoder layers, 0\.0 M parameters, 5 labels>", repr(tagger))


ROWS = [
    {"tokens": ["Angela", "visited", "Rome"], "tags": ["B-PER", "O", "B-LOC"]},
    {"tokens": ["Rome"], "tags": ["B-LOC"]},
    {"tokens": ["Angela", "Merkel"], "tags": ["B-PER", "I-PER"]},
]


def test_what_it_returns_prints_itself(tagger: Pipeline) -> None:
    with tagger.watch() as recording:
        tagger(TEXTS[0])
    scores = tagger.evaluate(ROWS)
    ranking = tagger.heads.rank(ROWS, by=("gradient",))
    profile = tagger.heads.stats(ROWS)
    mask = mh.Mask.causal() & mh.Mask.lengths([3, 5]) & mh.Mask.window(4)
    assert repr(mask) == "Mask.causal() & Mask.lengths([3, 5]) & Mask.window(4)"
    assert f"{scores['accuracy']:.4f}" in repr(scores)
    for thing, part in (
        (tagger, "24"), (recording, "encoder.2.self"), (scores, "accuracy"), (ranking, "encoder.2.self.3"),
        (profile, "encoder.2.self.3"), (mask, "lengths"),
    ):  # fmt: skip
        html = thing._repr_html_()
        assert part in html or thing is tagger
        assert html.startswith(("<table>", "<code>"))
        assert "<script" not in html


def test_names_in_a_table_are_escaped() -> None:
    assert "&lt;script&gt;" in html_table("t", ("a",), [("<script>",)])
    assert "and 3 more" in html_table("t", ("a",), [("x",)] * 5, limit=2)


def test_saved_and_opened_again_it_gives_the_same(tagger: Pipeline, tmp_path: Path) -> None:
    tagger.save(tmp_path / "model")
    assert mh.load(tmp_path / "model")(TEXTS) == tagger(TEXTS)


def test_what_exists_is_listed() -> None:
    assert mh.list_tasks()["classify"] == "text -> label"
    assert "BertForTokenClassification" in mh.list_models()["bert"]


def test_only_language_models_stream(tagger: Pipeline) -> None:
    with pytest.raises(ValueError, match="stream needs a language model"):
        tagger.stream("Rome")
    tokenizer = Tokenizer.train(TEXTS, "char", 60)
    model = LanguageModel(ModelConfig(vocab=len(tokenizer), dim=24, layers=1, heads=2, max_length=32)).eval()
    writer = Pipeline(model, native_config(model), tokenizer, options={"decode": {"max_length": 8, "sample": False}})
    assert isinstance("".join(writer.stream("Ro")), str)


@pytest.mark.parametrize("page", ["README.md", "README.zh.md", "docs/guide.md"])
def test_python_of_the_docs_runs_as_it_stands(
    tagger: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    for name in ("names", "demo"):
        save(tagger, tmp_path / "runs" / name / "model")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
