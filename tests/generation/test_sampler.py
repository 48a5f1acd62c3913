"""Greedy decoding: with a cache and in batches it writes what a plain loop writes for one row."""

import pytest
import torch
from torch import Tensor

from multihead.generation import greedy
from multihead.models import Encoder, EncoderDecoder, LanguageModel, LMReadout, ModelConfig, TaskModel

torch.set_num_threads(1)

SHAPES = {
    "rotary": {"positions": "rotary", "norm": "rms", "norm_first": True, "gated": True, "kv_heads": 2},
    "learned": {"positions": "learned", "norm_first": True},
    "sinusoidal": {"positions": "sinusoidal"},
    "alibi": {"positions": "alibi"},
    "relative": {"positions": "relative"},
    "window": {"positions": "rotary", "window": 4},
}
PROMPTS = [[5, 6, 7, 8, 9], [3], [11, 12, 13], [4, 4, 4, 4]]


def config(**shape: object) -> ModelConfig:
    return ModelConfig(**{"vocab": 31, "dim": 24, "layers": 2, "heads": 4, "max_length": 40, **shape})  # type: ignore[arg-type]


def language_model(**shape: object) -> TaskModel:
    torch.manual_seed(3)
    model = LanguageModel(config(**shape)).eval()
    with torch.no_grad():
        model.body.stem.embedding.weight.mul_(20)  # a random model otherwise repeats one token
    return model


def translator(**shape: object) -> TaskModel:
    torch.manual_seed(4)
    body = EncoderDecoder(config(**shape), shared=False)
    with torch.no_grad():
        body.encoder.stem.embedding.weight.mul_(50)  # sources that differ, and that are listened to
        for block in body.decoder.stack.blocks:
            block.cross.out.weight.mul_(5)
    return TaskModel(body, LMReadout(config(**shape))).eval()


def padded(rows: list[list[int]], side: str) -> tuple[Tensor, Tensor]:
    width = max(map(len, rows))
    fill = [[0] * (width - len(row)) for row in rows]
    flag = [[False] * len(empty) for empty in fill]
    if side == "left":
        tokens = [empty + row for empty, row in zip(fill, rows, strict=True)]
        keep = [no + [True] * len(row) for no, row in zip(flag, rows, strict=True)]
    else:
        tokens = [row + empty for empty, row in zip(fill, rows, strict=True)]
        keep = [[True] * len(row) + no for no, row in zip(flag, rows, strict=True)]
    return torch.tensor(tokens), torch.tensor(keep)


@torch.no_grad()
def plain(model: TaskModel, prompt: list[int], limit: int, stop: set[int], **options: Tensor) -> list[int]:
    """No cache, no batch: the whole text again for every token."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + limit and (len(tokens) == len(prompt) or tokens[-1] not in stop):
        body = model.body.decoder if isinstance(model.body, EncoderDecoder) else model.body
        tokens.append(int(model.readout(body(torch.tensor([tokens]), **options))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_batch_equals_rows_alone_and_a_plain_loop(shape: dict[str, object], side: str) -> None:
    model = language_model(**shape)
    free = [plain(model, prompt, 12, set()) for prompt in PROMPTS]
    stop = {free[0][3], free[2][6]}  # so that rows end at different steps
    expected = [plain(model, prompt, 12, stop) for prompt in PROMPTS]
    assert len({len(row) for row in expected}) > 1
    tokens, keep = padded(PROMPTS, side)
    assert greedy(model, tokens, keep=keep, limit=12, stop=stop) == expected
    assert [greedy(model, torch.tensor([prompt]), limit=12, stop=stop)[0] for prompt in PROMPTS] == expected


@pytest.mark.parametrize("shape", [SHAPES["sinusoidal"], SHAPES["relative"]], ids=["sinusoidal", "relative"])
def test_encoder_decoder(shape: dict[str, object]) -> None:
    model = translator(**shape)
    source, keep = padded(PROMPTS, "right")
    start = torch.full((len(PROMPTS), 1), 1)
    expected = []
    for row in PROMPTS:
        memory = model.body.encoder(torch.tensor([row]))
        expected.append(plain(model, [1], 9, set(), memory=memory))
    assert len({tuple(row) for row in expected}) > 1, "the source must matter"
    stop = {expected[1][2]}
    expected = [row[: next((i + 1 for i, t in enumerate(row) if t in stop), 9)] for row in expected]
    memory = model.body.encoder(source, keep)
    assert greedy(model, start, memory=memory, memory_keep=keep, limit=9, stop=stop) == expected


def test_finished_rows_leave_the_batch() -> None:
    model = language_model(positions="rotary")
    sizes: list[int] = []
    model.readout.register_forward_hook(lambda module, inputs, output: sizes.append(len(output)))
    tokens = torch.tensor([[5, 6], [7, 8], [9, 3]])
    free = greedy(model, tokens, limit=6)
    sizes.clear()
    greedy(model, tokens, limit=6, stop={free[1][1]})
    assert sizes[0] == 3
    assert sizes[-1] < 3


def test_room_and_misuse() -> None:
    model = language_model(positions="learned")
    tokens = torch.full((1, 30), 2)
    assert len(greedy(model, tokens, limit=11)[0]) == 11  # 30 + 11 - 1 = 40 positions
    with pytest.raises(ValueError, match="41 positions, this model has 40; shorten the prompt"):
        greedy(model, tokens, limit=12)
    with pytest.raises(ValueError, match="at least 1"):
        greedy(model, tokens, limit=0)
    with pytest.raises(ValueError, match="start token"):
        greedy(model, tokens, keep=torch.zeros(1, 30, dtype=torch.bool), limit=1)
    with pytest.raises(ValueError, match=r"call model\.eval\(\) first"):
        greedy(language_model(positions="rotary").train(), tokens, limit=1)
    with pytest.raises(ValueError, match="needs a source"):
        greedy(translator(), tokens[:, :1], limit=1)
    encoder = TaskModel(Encoder(config()), LMReadout(config())).eval()
    with pytest.raises(ValueError, match="Encoder cannot generate"):
        greedy(encoder, tokens, limit=1)
