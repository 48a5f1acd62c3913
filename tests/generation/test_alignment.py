"""Alignment: the cross-attention's weights over a finished text."""

from collections.abc import Callable

import pytest
import torch

from multihead.generation import GenerationConfig, align_tokens, decode
from multihead.inspection import watch
from multihead.models import TaskModel

Make = Callable[..., TaskModel]


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_as_watched_token_by_token(translator: Make, kv_heads: int) -> None:
    model = translator(layers=3, kv_heads=kv_heads)
    source = torch.tensor([[5, 6, 7, 8, 9], [3, 4, 0, 0, 0]])
    keep = torch.tensor([[True] * 5, [True, True, False, False, False]])
    memory, start = model.body.encoder(source, keep).detach(), torch.full((2, 1), 1)
    found = decode(model, start, GenerationConfig(), memory=memory, memory_keep=keep, limit=6)
    text = torch.cat((start, torch.tensor([several[0].tokens for several in found])), dim=1)
    weights = align_tokens(model, text, memory, keep)
    assert weights.shape == (2, 6, 5)
    assert not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6))
    assert float(weights[1, :, 2:].abs().max()) == 0
    for layers, chosen in ((None, [1]), ([0, -1], [0, 2])):
        got = align_tokens(model, text, memory, keep, layers=layers)
        for row, length in ((0, 5), (1, 2)):
            with watch(model) as seen:
                model.body.encoder(source[row : row + 1, :length])
                decode(model, start[:1], memory=memory[row : row + 1, :length], limit=6)
            heads = [seen[0].weights(f"decoder.{layer}.cross.{head}") for layer in chosen for head in range(4)]
            torch.testing.assert_close(got[row, :, :length], torch.stack(heads).mean(0), rtol=0, atol=1e-5)


def test_it_leaves_nothing_behind(translator: Make, language_model: Make) -> None:
    model = translator()
    memory = model.body.encoder(torch.tensor([[5, 6]]))
    align_tokens(model, torch.tensor([[1, 4, 5]]), memory)
    assert not any(block.cross.taps for block in model.body.decoder.stack.blocks)
    with pytest.raises(ValueError, match="Decoder has no source"):
        align_tokens(language_model(), torch.tensor([[1, 4]]), memory)
