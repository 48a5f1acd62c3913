"""From scratch: tokenizers trained on the training texts, and a model with random weights.

Where the run file describes the shape of a public family, the model is one, and loads in transformers:

| body | positions, norm | family |
|---|---|---|
| encoder | learned, post-norm | BERT |
| decoder | rotary, pre-norm | Llama (RMS norm, gated, no biases) |
| decoder | learned, pre-norm | GPT-2 |
| encoder and decoder | sinusoidal, post-norm | Marian |
| encoder and decoder, one vocabulary | learned, post-norm | BART |
| encoder and decoder, one vocabulary | learned, pre-norm | mBART |

Any other shape is native.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import nn

from multihead.config import RunConfig
from multihead.data.tokenizer_cache import load_or_train
from multihead.inference import Pipeline
from multihead.inference.pipeline import Json
from multihead.machine.memory import memory_limit
from multihead.models import Decoder, Encoder, EncoderDecoder, LMReadout, ModelConfig, TaskModel, TokenEmbedding
from multihead.models.families import native_config
from multihead.pretrained import create
from multihead.tasks import Task, Values
from multihead.tasks.chat import NEW, add_default_template, add_role_tokens
from multihead.text.tokenizer import Tokenizer

MAX_CHARACTERS = 100_000_000  # maximum characters of a tokenizer's training text


def create_model(
    run: RunConfig, kind: type[Task], train: Callable[[], Iterable[Values]], has_chat_template: bool = False
) -> Pipeline:
    """Build the model of a run file without `from`, with an LM readout if the task needs one; has_chat_template: add a
    chat template."""
    check_memory(run, kind)
    if kind.body == "encoder_decoder" and not run.tokenizer.shared:
        reads, writes = (
            _train_tokenizer(run, train, ("source", "text")),
            _train_tokenizer(run, train, ("target", "text")),
        )
        reads.target = writes
    else:
        reads = writes = (
            add_role_tokens(_train_tokenizer(run, train, less=NEW))
            if has_chat_template
            else _train_tokenizer(run, train)
        )
    family, encoder, decoder = _shapes(run, kind, reads, writes)
    config = special_token_ids(writes)
    if has_chat_template:
        add_default_template(writes, config["bos_token_id"], config["eos_token_id"])
    loaded = (
        _native_model(encoder, decoder, run.tokenizer.shared, kind)
        if family is None
        else create(
            *_family_architecture(family, kind),
            encoder=encoder,
            decoder=decoder,
            shared=run.tokenizer.shared,
            config=config,
        )
    )
    loaded.tokenizer, loaded.target_tokenizer = reads, None if writes is reads else writes
    loaded.generation = {} if decoder is None else config
    return loaded


def check_memory(run: RunConfig, kind: type[Task]) -> None:
    """Raise if the model cannot be trained here: weights, gradients and AdamW's two moments, 4 bytes each."""
    model = run.model
    layers = model.layers + ((model.decoder_layers or model.layers) if kind.body == "encoder_decoder" else 0)
    count = layers * (4 * model.dim**2 + 2 * model.dim * (model.inner or 4 * model.dim))
    count += model.max_length * model.dim if model.positions in ("learned", "sinusoidal") else 0
    needed, there = 16 * count, memory_limit()
    if needed > there:
        raise ValueError(
            f"model.dim = {model.dim}, model.layers = {model.layers}, model.inner and model.max_length make {count:,} "
            f"weights; training needs {needed / 2**30:,.0f} GiB, {there / 2**30:,.0f} GiB are available: reduce them"
        )


def special_token_ids(tokenizer: Tokenizer) -> Json:
    """Return the start, end and padding tokens for config.json and generation_config.json."""
    special = tokenizer.special
    first = special.get("bos", special.get("cls"))
    last = special.get("eos", special.get("sep"))
    ids = {
        "bos_token_id": first,
        "eos_token_id": last,
        "pad_token_id": special.get("pad"),
        "decoder_start_token_id": first,
    }
    return {name: number for name, number in ids.items() if number is not None}


def texts_of(values: Values, names: Iterable[str] | None = None) -> Iterator[str]:
    """Yield the texts of a row, for training a tokenizer."""
    if "tokens" in values:
        yield " ".join(values["tokens"])
    yield from (message["content"] for message in values.get("conversation", ()))
    for name in names or ("text", "text_a", "text_b", "question", "context", "source", "target"):
        if name in values:
            yield values[name] if isinstance(values[name], str) else " ".join(values[name])


def _train_tokenizer(
    run: RunConfig, train: Callable[[], Iterable[Values]], names: tuple[str, ...] | None = None, less: int = 0
) -> Tokenizer:
    """Train a tokenizer, stored in the run's cache. names: the columns that it is trained on; None: all texts. less:
    number of tokens that will be added to it."""
    options, alone = run.tokenizer, [run] if run.task else [run.for_task(block) for block in run.tasks]
    trains = [part.data.train for part in alone if part.data is not None]
    files = [file for part in trains for file in ([part] if isinstance(part, str) else part)]
    settings = {
        "data": [part.data.model_dump(mode="json") for part in alone if part.data],
        "names": names,
        "most": MAX_CHARACTERS,
    }

    def texts() -> Iterator[str]:
        return _first(text for values in train() for text in texts_of(values, names))

    cache = Path(run.out) / "cache"
    try:
        return load_or_train(cache, files, settings, texts, options.kind, options.vocab - less, options.lowercase)
    except ValueError as error:
        if not str(error).startswith("vocab="):
            raise
        raise ValueError(f"tokenizer.{error}") from None  # the full name of the key


def _first(texts: Iterable[str]) -> Iterator[str]:
    characters = 0
    for text in texts:
        yield text
        characters += len(text)
        if characters >= MAX_CHARACTERS:
            return


def _shapes(
    run: RunConfig, kind: type[Task], reads: Tokenizer, writes: Tokenizer
) -> tuple[str | None, ModelConfig | None, ModelConfig | None]:
    """Return the family, and the config of each side."""
    shape = run.model.model_dump(exclude={"decoder_layers"})
    look = (shape["positions"], shape["norm_first"])
    plain = shape["kv_heads"] is None or shape["kv_heads"] == shape["heads"]
    more: dict[str, Any] = {}
    if kind.body == "encoder":
        family = "bert" if look == ("learned", False) and plain else None
        more = {"activation": "gelu", "token_types": 2} | ({"embed_norm": True} if family else {})
        return family, _config(reads, shape, more), None
    if kind.body == "decoder":
        family = {("rotary", True): "llama", ("learned", True): "gpt2" if plain else None}.get(look)
        if family == "llama":
            inner = shape["inner"] or 8 * round(shape["dim"] / 3)  # 8/3 · dim, so that gating adds no weights
            shape["inner"] = inner
            more = {"norm": "rms", "gated": True, "activation": "silu", "attention_bias": "", "inner_bias": False}
        elif family == "gpt2":
            more = {"activation": "gelu_tanh"}
        return family, None, _config(writes, shape, more)
    shared = run.tokenizer.shared
    families = {
        ("sinusoidal", False): "marian",
        ("learned", False): "bart" if shared else None,
        ("learned", True): "mbart" if shared else None,
    }
    family = families.get(look) if plain else None
    if family in ("bart", "mbart"):
        more = {"embed_norm": True, "position_offset": 2, "activation": "gelu"}
    layers = run.model.decoder_layers or run.model.layers
    return family, _config(reads, shape, more), _config(writes, {**shape, "layers": layers}, more)


def _config(tokenizer: Tokenizer, shape: dict[str, Any], more: dict[str, Any]) -> ModelConfig:
    if shape["positions"] == "sinusoidal":  # sinusoids are large compared with embeddings of the usual scale
        more = {"embed_scale": shape["dim"] ** 0.5, **more}
    return ModelConfig(vocab=len(tokenizer), pad=tokenizer.special.get("pad"), **shape, **more)


def _family_architecture(family: str, kind: type[Task]) -> tuple[str, str]:
    """Return the family and its architecture name; classification tasks get their readout later."""
    if kind.readout.over != "vocabulary":
        return family, "Model"
    return family, kind.readout.other if family in ("marian", "gpt2") else kind.readout.architecture


def _native_model(encoder: ModelConfig | None, decoder: ModelConfig | None, shared: bool, kind: type[Task]) -> Pipeline:
    body: Encoder | Decoder | EncoderDecoder
    if encoder is not None and decoder is not None:
        body = EncoderDecoder(encoder, decoder, shared)
    elif encoder is not None:
        body = Encoder(encoder)
    else:
        assert decoder is not None
        body = Decoder(decoder)
    model = TaskModel(body, nn.Identity())
    if kind.readout.over == "vocabulary":
        model = with_vocabulary(body, transform=kind.body == "encoder")
    return Pipeline(model.eval(), native_config(model))


def with_vocabulary(body: Encoder | Decoder | EncoderDecoder, transform: bool) -> TaskModel:
    """Return a model with an LM readout tied to the embeddings; transform: with BERT's layer between."""
    last = body.decoder if isinstance(body, EncoderDecoder) else body
    table = last.stem.embedding.weight if last.config.tied and isinstance(last.stem, TokenEmbedding) else None
    return TaskModel(body, LMReadout(last.config, table, bias=transform, transform=transform))
