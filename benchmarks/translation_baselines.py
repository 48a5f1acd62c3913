"""The contestants of `multihead bench decode`: one translation model, opened by each of them."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.attention_baselines import OURS
from multihead.generation import GenerationConfig, decode, greedy
from multihead.models import EncoderDecoder, TaskModel
from multihead.pretrained import load
from multihead.text.tokenizer import Tokenizer

THEIRS, CT2, CT2_INT8 = "transformers", "CTranslate2", "CTranslate2 int8"
SOURCES, LINES = 32, 64  # random ones; of a text
LIMIT, LONGEST = 24, 24  # tokens written and read at most, where they are random
ENOUGH = 128  # tokens written at most, where a text is read: models of their own know when to stop
VOCAB, EOS = 8000, 0

Texts = list[list[int]]
Write = Callable[[list[list[int]], int], Texts]  # sources, beam -> texts, without the stop token


@contextmanager
def weights(model: Path | None) -> Iterator[Path]:
    """The directory of a Marian model: the given one, or one with random weights."""
    if model is not None:
        yield model
        return
    with tempfile.TemporaryDirectory() as made:
        _random(Path(made))
        yield Path(made)


def _random(directory: Path) -> None:
    """Random, but listening to the source and to itself. Where such a text ends says nothing: all go to the limit."""
    from transformers import MarianConfig, MarianMTModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=VOCAB, d_model=128, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=256, decoder_ffn_dim=256, max_position_embeddings=256,
        activation_function="relu", scale_embedding=True, pad_token_id=VOCAB - 1, eos_token_id=EOS, bos_token_id=None,
        decoder_start_token_id=VOCAB - 1, forced_eos_token_id=None,
    )  # fmt: skip
    model = MarianMTModel(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "positions" not in name:
                weight.normal_(std=(1.0 if "encoder_attn" in name else 2.0) * weight.shape[1] ** -0.5)
        model.model.shared.weight.normal_(std=128**-0.5)
        model.model.shared.weight[[EOS, VOCAB - 1]] = 0  # they score 0 where others score more: never written
    model.generation_config.bad_words_ids = None
    model.save_pretrained(directory)


def _sources(vocab: int, eos: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(6, LONGEST, (SOURCES,), generator=draw).tolist()
    rows = torch.randint(2, vocab - 1, (SOURCES, LONGEST), generator=draw).tolist()
    return [[*row[:length], eos] for row, length in zip(rows, lengths, strict=True)]


def _read(data: Path, tokenizer: Tokenizer | None) -> list[list[int]]:
    """The first lines of a text, as the model's tokenizer cuts them."""
    if tokenizer is None:
        raise ValueError(f"{data}: this model has no tokenizer to read it with; leave --data out")
    lines = [line for line in data.read_text(encoding="utf-8").split("\n") if line.strip()][:LINES]
    return [list(tokenizer.encode(line).ids) for line in lines]


def make_writers(directory: Path, data: Path | None = None) -> tuple[dict[str, Write], list[list[int]]]:
    """Every contestant that is here, on the same weights, and the sources: lines of `data`, or random tokens."""
    loaded = load(directory)
    config, body = loaded.config, loaded.model.body
    if config.get("model_type") != "marian" or not isinstance(body, EncoderDecoder):
        raise ValueError(
            f"{directory}: this race is run on a Marian model (model_type is {config.get('model_type')!r})"
        )
    pad, eos, vocab = int(config["pad_token_id"]), int(config["eos_token_id"]), int(config["vocab_size"])
    start = int(config["decoder_start_token_id"])
    limit = LIMIT if data is None else ENOUGH
    found = {OURS: _ours(loaded.model, pad, eos, start, limit), THEIRS: _theirs(directory, pad, eos, limit)}
    if find_spec("ctranslate2") is not None:
        for name, kind in ((CT2, "float32"), (CT2_INT8, "int8")):
            found[name] = _ctranslate2(directory, kind, _names(vocab, eos), limit)
    return found, _sources(vocab, eos) if data is None else _read(data, loaded.tokenizer)


def pad_rows(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    tokens = torch.tensor([[*row, *[pad] * (width - len(row))] for row in rows])
    return tokens, torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]


def _cut(text: Sequence[int], eos: int) -> list[int]:
    return list(text[: text.index(eos)]) if eos in text else list(text)


def _ours(model: TaskModel, pad: int, eos: int, first: int, limit: int) -> Write:
    body: Any = model.eval().body

    @torch.inference_mode()
    def write(sources: list[list[int]], beam: int) -> Texts:
        tokens, keep = pad_rows(sources, pad)
        mask = None if bool(keep.all()) else keep
        given = {"memory": body.encoder(tokens, mask), "memory_keep": mask, "limit": limit, "stop": frozenset((eos,))}
        start = torch.full((len(sources), 1), first)
        if beam == 1:
            return [_cut(text, eos) for text in greedy(model, start, **given)]
        found = decode(model, start, GenerationConfig(beam=beam, early="full"), **given)
        return [_cut(several[0].tokens, eos) for several in found]

    return write


def _theirs(directory: Path, pad: int, eos: int, limit: int) -> Write:
    from transformers import AutoModelForSeq2SeqLM, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model: Any = AutoModelForSeq2SeqLM.from_pretrained(directory).eval()

    def write(sources: list[list[int]], beam: int) -> Texts:
        tokens, keep = pad_rows(sources, pad)
        out = model.generate(
            tokens,
            attention_mask=keep.long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=limit,
            early_stopping=beam > 1,
            length_penalty=1.0,
            bad_words_ids=None,
            forced_eos_token_id=None,
            forced_bos_token_id=None,
            no_repeat_ngram_size=0,
        )
        return [_cut(row, eos) for row in out[:, 1:].tolist()]

    return write


def _names(vocab: int, eos: int) -> list[str]:
    """What CTranslate2 calls the tokens: their numbers, but for those that it knows by name."""
    special = {eos: "</s>", int(eos == 0): "<unk>"}
    return [special.get(number, str(number)) for number in range(vocab)]


def _ctranslate2(directory: Path, kind: str, names: list[str], limit: int) -> Write:
    # Its threads would go on turning for 200 ms after every call, and take the cores from whoever runs next.
    os.environ.setdefault("KMP_BLOCKTIME", "0")
    import ctranslate2
    from ctranslate2.converters.transformers import BartLoader
    from transformers import MarianMTModel

    numbers = {name: number for number, name in enumerate(names)}

    class VocabularyAdapter:
        """A tokenizer, as far as the converter asks."""

        bos_token = eos_token = "</s>"  # a text begins with what the model says, never with bos
        unk_token = "<unk>"

        def get_vocab(self) -> dict[str, int]:
            return numbers

        def convert_ids_to_tokens(self, number: int) -> str:
            return names[number]

    class Converter(ctranslate2.converters.Converter):  # type: ignore[misc]
        """As a Bart without its two norms: CTranslate2's Marian begins every text with zeros, ours with a token."""

        def _load(self) -> Any:
            model = MarianMTModel.from_pretrained(directory)
            model.config.normalize_before = model.config.normalize_embedding = False
            with torch.no_grad():
                return BartLoader()(model, VocabularyAdapter())

    with tempfile.TemporaryDirectory() as made:
        Converter().convert(made, quantization=kind, force=True)
        every = [
            ctranslate2.Translator(made, device="cpu", compute_type=kind, inter_threads=1, intra_threads=count)
            for count in {1, torch.get_num_threads()}
        ]

    def seconds(translator: Any) -> float:
        text = [[names[number] for number in range(2, 22)]]
        began = time.perf_counter()
        for _ in range(3):
            translator.translate_batch(text, beam_size=1, max_decoding_length=limit)
        return time.perf_counter() - began

    translator = min(every, key=seconds)  # a small model is quicker on one thread

    def write(sources: list[list[int]], beam: int) -> Texts:
        found = translator.translate_batch(
            [[names[token] for token in row] for row in sources], beam_size=beam, max_decoding_length=limit
        )
        return [[numbers[name] for name in one.hypotheses[0]] for one in found]

    return write
