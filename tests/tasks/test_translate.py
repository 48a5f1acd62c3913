"""translate and summarize: how texts are framed, cut, joined, aligned and scored."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from multihead.generation import Hypothesis
from multihead.inference.engine import predict_rows
from multihead.models import EncoderDecoder, ModelConfig
from multihead.tasks import IGNORE, Summarize, Translate
from multihead.tasks.summarize import SummaryScorer, first_sentence
from multihead.tasks.translate import GeneratedText, combine_nbest, join_texts
from multihead.tasks.word_alignment import link_words
from multihead.tasks.word_spans import WORDS
from multihead.text.tokenizer import Tokenizer
from multihead.training.from_scratch import with_vocabulary

LINES = ["the cat sat.", "a dog ran!", "狗跑了。", "they met in Rome?"]


def made(kind: type[Translate] = Translate, size: int = 24, tokens: str = "bpe", **options):
    tokenizer = Tokenizer.train(LINES, tokens, 300)
    start, stop = (tokenizer.special.get(a, tokenizer.special.get(b)) for a, b in (("bos", "cls"), ("eos", "sep")))
    task = kind(tokenizer, [], size, 0, **({"start": start, "stop": [stop], "decode": {"max_length": 8}} | options))
    torch.manual_seed(2)
    config = ModelConfig(vocab=len(tokenizer), dim=24, layers=2, heads=2, max_length=size, positions="sinusoidal")
    model = with_vocabulary(EncoderDecoder(config), transform=False).eval()
    with torch.no_grad():
        model.body.encoder.stem.embedding.weight.mul_(20)
    return model, task


def test_a_target_begins_and_ends_once():
    for tokens in ("bpe", "wordpiece"):
        _, task = made(tokens=tokens)
        ids = task.target("the cat sat.")
        start, stop = task.options["start"], task.options["stop"][0]
        assert (ids[0], ids[-1], ids.count(start), ids.count(stop)) == (start, stop, 1, 1)
        assert task.text(ids[1:]) == "the cat sat."
    bos, eos = task.tokenizer.special["cls"], task.tokenizer.special["sep"]
    _, bart = made(tokens="wordpiece", start=eos)  # as BART: </s> <s> text </s>
    assert bart.target("a dog")[:2] == [eos, bos]


def test_the_decoder_is_taught_the_next_token_and_padding_teaches_nothing():
    model, task = made()
    rows = [{"source": "the cat", "target": "a dog ran!"}, {"source": "they met in", "target": "狗"}]
    windows = [task.encode(row)[0] for row in rows]
    batch = task.collate(windows)
    hidden, labels = task.run_decoder(model, batch, task.run_encoder(model, batch))
    assert hidden.shape[:2] == labels.shape
    for row, window in zip(labels, windows, strict=True):
        assert row[row != IGNORE].tolist() == window["target"][1:].tolist()
    total, count = task.loss(model, batch)
    alone = [task.loss(model, task.collate([window])) for window in windows]
    assert count == sum(number for _, number in alone)
    assert total.item() == pytest.approx(sum(part.item() for part, _ in alone), rel=1e-5)


def test_a_long_source_is_cut_at_sentences_and_nothing_is_lost():
    model, task = made()
    text = "the cat sat. a dog ran! they met in Rome? " * 3 + "狗跑了。" * 4
    windows = task.encode({"source": text})
    assert len(windows) == 3
    assert all(len(window["tokens"]) <= task.size for window in windows)
    parts = [task.tokenizer.decode(window["tokens"].tolist()) for window in windows]
    assert "".join(parts) == text
    assert all(part.rstrip()[-1] in ".!?。" for part in parts)
    ((_, said),) = predict_rows(model, task, [{"source": text}])
    assert said["input_info"] == {"windows": len(windows), "truncated": 0, "unknown": 0}
    word = "x" * 200
    assert "".join(task.tokenizer.decode(w["tokens"].tolist()) for w in task.encode({"source": word})) == word


def test_n_best_and_alignment():
    model, task = made(decode={"max_length": 8, "beam": 4, "nbest": 3, "alignment": True})
    source = "the cat sat."
    ((_, said),) = predict_rows(model, task, [{"source": source}])
    scores = [one["score"] for one in said["nbest"]]
    assert scores == sorted(scores, reverse=True)
    assert len({one["target"] for one in said["nbest"]}) == 3
    assert said["nbest"][0] == {"target": said["target"], "score": said["score"]}
    for link in said["alignment"]:
        (a, b), (c, d) = link["source"], link["target"]
        assert source[a:b].strip()
        assert 0 <= c < d
        assert 0 < link["score"] <= 1


def test_n_best_and_alignment_of_a_long_source():
    """Combinations of what was written from its windows; words stand where they do in the whole texts."""
    model, task = made(decode={"max_length": 8, "beam": 4, "nbest": 3, "alignment": True})
    source = "the cat sat. a dog ran! they met in Rome? " * 3
    windows = task.encode({"source": source})
    assert len(windows) > 1
    ((_, said),) = predict_rows(model, task, [{"source": source}])
    scores = [one["score"] for one in said["nbest"]]
    assert scores == sorted(scores, reverse=True)
    assert said["nbest"][0] == {"target": said["target"], "score": said["score"]}
    assert len({one["target"] for one in said["nbest"]}) == 3
    # A model that writes what it reads, and looks there.
    parts = [window["tokens"].tolist() for window in windows]
    read = [GeneratedText([Hypothesis(ids[1:], 0.0)], seen=np.eye(len(ids))[1:]) for ids in parts]
    whole = task.postprocess({"source": source}, windows, read)
    assert whole["target"] == source.strip()
    assert [link["source"] for link in whole["alignment"]] == [list(m.span()) for m in WORDS.finditer(source)]
    assert [link["target"] for link in whole["alignment"]] == [link["source"] for link in whole["alignment"]]


def test_a_long_text_is_aligned_as_far_as_it_was_read():
    model, task = made(Summarize, decode={"max_length": 8, "alignment": True})
    ((_, said),) = predict_rows(model, task, [{"source": "the cat sat. " * 20}])
    assert said["input_info"]["truncated"] > 0
    assert said["alignment"]


def test_combinations_of_windows():
    windows = [[Hypothesis([i], score) for i, score in enumerate(scores)] for scores in ([-1, -4], [-2, -2.5, -9])]
    found = [[one.tokens[0] for one in several] for several in combine_nbest(windows, 4)]
    assert found == [[0, 0], [0, 1], [1, 0], [1, 1]]


def test_words_are_aligned_by_the_mass_of_their_tokens():
    read = [(-1, -1), (0, 3), (4, 7), (7, 8)]
    written = [(0, 2), (2, 4), (5, 8), (8, 8)]
    weights = np.array([[0.1, 0.8, 0.1, 0.0], [0.2, 0.3, 0.5, 0.0], [0.9, 0.0, 0.1, 0.0], [1.0, 0, 0, 0]])
    found = link_words("the cat.", read, "Kater da", written, weights)
    assert [(link["source"], link["target"]) for link in found] == [([0, 3], [0, 5]), ([4, 7], [6, 8])]
    assert found[0]["score"] == pytest.approx(1.1 / 1.7, abs=1e-3)


@pytest.mark.parametrize("tokens", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("target", ["狗跑了。", "the cat sat."])
def test_every_word_of_the_text_given_back_is_aligned_in_its_place(tokens: str, target: str):
    _, task = made(tokens=tokens)
    ids = task.target(target)[1:]
    seen = np.full((len(ids), len(task.tokenizer.encode("a dog ran!"))), 0.1)
    found = task.align_words("a dog ran!", [GeneratedText([Hypothesis(ids, 0.0)], seen=seen)])
    assert [target[slice(*link["target"])] for link in found] == [m.group() for m in WORDS.finditer(target)]


def test_a_token_of_two_characters_is_a_part_of_both():
    weights = np.array([[0.9, 0.1], [0.2, 0.8]])
    found = link_words("Tom ran", [(0, 3), (3, 7)], "汤姆跑", [(0, 2), (2, 3)], weights)
    assert [(link["source"], link["target"]) for link in found] == [
        ([0, 3], [0, 1]),
        ([0, 3], [1, 2]),
        ([4, 7], [2, 3]),
    ]


def test_chinese_pieces_have_no_spaces_between_them():
    _, task = made(tokens="wordpiece")
    ids = task.target("狗跑了。a dog")
    assert task.text(ids[1:]) == "狗跑了。 a dog"


def test_leads_stand_beside_summaries():
    scorer = SummaryScorer("words", False, 0)
    values = {"source": "Rome fell today. Nobody saw it.", "target": ["rome fell"]}
    assert scorer.add(values, {"target": "rome fell"}, 0)
    result = scorer.result()
    assert result["rouge1"].value == 100
    assert result["lead.rouge1"].value == pytest.approx(100 * 2 * 2 / 5)
    assert result["lead_short.rouge1"].value == 100
    assert first_sentence("  A rose of 3.5 pct. Then more") == "A rose of 3.5 pct."
    assert first_sentence("今天下雨。明天晴。") == "今天下雨。"


def test_a_long_text_is_read_from_its_beginning():
    _, task = made(Summarize)
    (window,) = task.encode({"source": ["the cat sat."] * 20, "target": "a dog"})
    assert len(window["tokens"]) == task.size
    assert window["tokens"][-1] == task.options["stop"][0]
    assert window["cut"] > 30
    assert task.skip_reason([window]) == ""


def test_parts_are_joined_as_sentences_are() -> None:
    assert join_texts(["", "He left.", "", "He came."]) == "He left. He came."
    assert join_texts(["他走了。", "他来了。"]) == "他走了。他来了。"
    assert join_texts(["", ""]) == ""
