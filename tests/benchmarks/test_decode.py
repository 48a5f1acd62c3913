"""The race of decoders on a tiny model: it runs, all write the same, and a contestant that does not is told."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import decode, translation_baselines
from benchmarks.attention_baselines import AGAIN, OURS
from benchmarks.timing import Ratio

transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translation_baselines, "VOCAB", 300)
        folder = tmp_path_factory.mktemp("model")
        translation_baselines._random(folder)
        return folder


def test_everybody_writes_the_same(small: Path) -> None:
    contestants, sources = translation_baselines.make_writers(small)
    for beam in decode.BEAMS:
        for some in (sources[:1], sources[:6]):
            texts = {name: write(some, beam) for name, write in contestants.items()}
            assert texts[translation_baselines.THEIRS] == texts[OURS]
            assert len(texts[OURS]) == len(some)
            assert {len(text) for text in texts[OURS]} == {translation_baselines.LIMIT}
            if translation_baselines.CT2 in texts:
                same = sum(a == b for a, b in zip(texts[translation_baselines.CT2], texts[OURS], strict=True))
                assert same >= len(some) - 1


def test_a_text_may_begin_with_any_token(small: Path, tmp_path: Path) -> None:
    """CTranslate2 takes padding for the last token and begins with zeros, unless it is told otherwise."""
    model = transformers.MarianMTModel.from_pretrained(small)
    model.config.decoder_start_token_id, model.config.pad_token_id = 5, 1
    model.generation_config.decoder_start_token_id, model.generation_config.pad_token_id = 5, 1
    model.save_pretrained(tmp_path)
    contestants, sources = translation_baselines.make_writers(tmp_path)
    texts = {name: write(sources[:6], 1) for name, write in contestants.items()}
    other, _ = translation_baselines.make_writers(small)
    assert texts[translation_baselines.THEIRS] == texts[OURS] != other[OURS](sources[:6], 1)
    if translation_baselines.CT2 in texts:
        assert texts[translation_baselines.CT2] == texts[OURS]


def test_run(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def quick(jobs: dict[str, object], rounds: int, same: tuple[str, str]) -> dict[str, list[float]]:
        assert rounds == 2
        return {name: [1.0, 1.1] if name in same else [3.3, 3.2] for name in jobs}

    monkeypatch.setattr(decode, "time_rounds", quick)
    monkeypatch.setattr(decode, "BATCHES", (4,))
    assert decode.run(small, None, rounds=2, out=tmp_path, json=True) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown == json.loads((tmp_path / "decode.json").read_text())
    assert shown["holds"]
    assert [(line["beam"], line["batch"]) for line in shown["lines"]] == [(1, 4), (5, 4)]
    assert shown["lines"][0]["ratios"][translation_baselines.THEIRS]["minima"] == pytest.approx(1 / 3.2)
    assert AGAIN in shown["lines"][0]["ratios"]


def test_all_numbers_are_seen_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    names = (translation_baselines.THEIRS, translation_baselines.CT2, translation_baselines.CT2_INT8, AGAIN)
    ratios = {name: Ratio(0.1, 1 / 12.34, 1 / 56.78, 1 / 11.22, 0.95) for name in names}
    line = decode.DecodeResult(5, 32, 9, 123_456, {OURS: 1.0}, ratios, dict.fromkeys(names, 0.5))
    decode.show(decode.DecodeReport({"cpu": "x"}, "m", [], [line]), decode.Console(width=80))
    shown = capsys.readouterr().out
    assert "123,456" in shown
    assert shown.count("12.34") == shown.count("11.22–56.78") == shown.count("[50%]") == 4


def test_a_slow_or_wrong_run_fails(small: Path) -> None:
    slow = Ratio(0.5, 0.5, 0.45, 0.6, 0.95)
    assert not decode.DecodeResult(1, 1, 5, 9, {}, {translation_baselines.THEIRS: slow}, {}).holds
    assert decode.DecodeResult(
        1, 1, 5, 9, {}, {translation_baselines.THEIRS: Ratio(0.34, 0.34, 0.33, 0.4, 0.95)}, {}
    ).holds
    contestants, sources = translation_baselines.make_writers(small)
    liar = {OURS: contestants[OURS], translation_baselines.THEIRS: lambda some, beam: [[5]] * len(some)}
    with pytest.raises(ValueError, match="32 of 32 texts are not those of transformers"):
        decode.line(liar, sources, 1, 32, 1)


def test_misuse(tmp_path: Path, small: Path) -> None:
    (tmp_path / "text").write_text("one\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no tokenizer"):
        translation_baselines.make_writers(small, tmp_path / "text")
    other = tmp_path / "bert"
    small_bert = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    transformers.BertModel(transformers.BertConfig(vocab_size=30, **small_bert)).save_pretrained(other)
    with pytest.raises(ValueError, match="run on a Marian model"):
        translation_baselines.make_writers(other)
