"""From scratch: tokenizers learnt from the training texts, and a model with new weights.

Where the run file asks for the shape of a public family, the model is one, and opens in transformers:

| body | positions, norm | family |
|---|---|---|
| encoder | learned, norm after | BERT |
| decoder | rotary, norm before | Llama (RMS norm, gated, no biases) |
| decoder | learned, norm before | GPT-2 |
| encoder and decoder | sinusoidal, norm after | Marian |
| encoder and decoder, one vocabulary | learned, norm after | BART |
| encoder and decoder, one vocabulary | learned, norm before | mBART |

Any other shape is our own.
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

LEARNT = 100_000_000  # characters that a tokenizer is learnt from, at most


def create_model(
    run: RunConfig, kind: type[Task], train: Callable[[], Iterable[Values]], talks: bool = False
) -> Pipeline:
    """The model of a run file without `from`, with the vocabulary readout of a task that wants one; talks: with a chat
    template."""
    check_memory(run, kind)
    if kind.body == "encoder_decoder" and not run.tokenizer.shared:
        reads, writes = (
            _train_tokenizer(run, train, ("source", "text")),
            _train_tokenizer(run, train, ("target", "text")),
        )
        reads.target = writes
    else:
        reads = writes = (
            add_role_tokens(_train_tokenizer(run, train, less=NEW)) if talks else _train_tokenizer(run, train)
        )
    family, encoder, decoder = _shapes(run, kind, reads, writes)
    config = special_token_ids(writes)
    if talks:
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
    """Raise if the layers cannot be trained here: weights, gradients and AdamW's two moments, 4 bytes each."""
    model = run.model
    layers = model.layers + ((model.decoder_layers or model.layers) if kind.body == "encoder_decoder" else 0)
    count = layers * (4 * model.dim**2 + 2 * model.dim * (model.inner or 4 * model.dim))
    count += model.max_length * model.dim if model.positions in ("learned", "sinusoidal") else 0
    needed, there = 16 * count, memory_limit()
    if needed > there:
        raise ValueError(
            f"model.dim = {model.dim}, model.layers = {model.layers}, model.inner and model.max_length make {count:,} "
            f"weights; to train them takes {needed / 2**30:,.0f} GiB, there are {there / 2**30:,.0f}: make them smaller"
        )


def special_token_ids(tokenizer: Tokenizer) -> Json:
    """How a text begins and ends, as config.json and generation_config.json say it."""
    special = tokenizer.special
    first = special.get("bos", special.get("cls"))
    last = special.get("eos", special.get("sep"))
    found = {
        "bos_token_id": first,
        "eos_token_id": last,
        "pad_token_id": special.get("pad"),
        "decoder_start_token_id": first,
    }
    return {name: number for name, number in found.items() if number is not None}


def texts_of(values: Values, names: Iterable[str] | None = None) -> Iterator[str]:
    """The texts of a row, for a tokenizer to learn from."""
    if "tokens" in values:
        yield " ".join(values["tokens"])
    yield from (message["content"] for message in values.get("conversation", ()))
    for name in names or ("text", "text_a", "text_b", "question", "context", "source", "target"):
        if name in values:
            yield values[name] if isinstance(values[name], str) else " ".join(values[name])


def _train_tokenizer(
    run: RunConfig, train: Callable[[], Iterable[Values]], names: tuple[str, ...] | None = None, less: int = 0
) -> Tokenizer:
    """Kept in the run's cache. names: the columns that it is learnt from; None: all texts. less: tokens that are to be
    added to it."""
    options, alone = run.tokenizer, [run] if run.task else [run.for_task(block) for block in run.tasks]
    given = [one.data.train for one in alone if one.data is not None]
    files = [file for one in given for file in ([one] if isinstance(one, str) else one)]
    settings = {"data": [one.data.model_dump(mode="json") for one in alone if one.data], "names": names, "most": LEARNT}

    def texts() -> Iterator[str]:
        return _first(text for values in train() for text in texts_of(values, names))

    cache = Path(run.out) / "cache"
    try:
        return load_or_train(cache, files, settings, texts, options.kind, options.vocab - less, options.lowercase)
    except ValueError as error:
        if not str(error).startswith("vocab="):
            raise
        raise ValueError(f"tokenizer.{error}") from None  # the key's whole name


def _first(texts: Iterable[str]) -> Iterator[str]:
    seen = 0
    for text in texts:
        yield text
        seen += len(text)
        if seen >= LEARNT:
            return


def _shapes(
    run: RunConfig, kind: type[Task], reads: Tokenizer, writes: Tokenizer
) -> tuple[str | None, ModelConfig | None, ModelConfig | None]:
    """The family, and the shape of each side."""
    given = run.model.model_dump(exclude={"decoder_layers"})
    look = (given["positions"], given["norm_first"])
    plain = given["kv_heads"] is None or given["kv_heads"] == given["heads"]
    more: dict[str, Any] = {}
    if kind.body == "encoder":
        family = "bert" if look == ("learned", False) and plain else None
        more = {"activation": "gelu", "token_types": 2} | ({"embed_norm": True} if family else {})
        return family, _config(reads, given, more), None
    if kind.body == "decoder":
        family = {("rotary", True): "llama", ("learned", True): "gpt2" if plain else None}.get(look)
        if family == "llama":
            inner = given["inner"] or 8 * round(given["dim"] / 3)  # 8/3 · dim, so that the gate adds no weights
            given["inner"] = inner
            more = {"norm": "rms", "gated": True, "activation": "silu", "attention_bias": "", "inner_bias": False}
        elif family == "gpt2":
            more = {"activation": "gelu_tanh"}
        return family, None, _config(writes, given, more)
    one = run.tokenizer.shared
    families = {
        ("sinusoidal", False): "marian",
        ("learned", False): "bart" if one else None,
        ("learned", True): "mbart" if one else None,
    }
    family = families.get(look) if plain else None
    if family in ("bart", "mbart"):
        more = {"embed_norm": True, "position_offset": 2, "activation": "gelu"}
    layers = run.model.decoder_layers or run.model.layers
    return family, _config(reads, given, more), _config(writes, {**given, "layers": layers}, more)


def _config(tokenizer: Tokenizer, given: dict[str, Any], more: dict[str, Any]) -> ModelConfig:
    if given["positions"] == "sinusoidal":  # they are large: tokens of the usual size would drown in them
        more = {"embed_scale": given["dim"] ** 0.5, **more}
    return ModelConfig(vocab=len(tokenizer), pad=tokenizer.special.get("pad"), **given, **more)


def _family_architecture(family: str, kind: type[Task]) -> tuple[str, str]:
    """The family and its name for the readout; a task that learns classes gets its readout later."""
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
    """A readout tied to the table of embeddings; transform: with BERT's layer between."""
    last = body.decoder if isinstance(body, EncoderDecoder) else body
    table = last.stem.embedding.weight if last.config.tied and isinstance(last.stem, TokenEmbedding) else None
    return TaskModel(body, LMReadout(last.config, table, bias=transform, transform=transform))
