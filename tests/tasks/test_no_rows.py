"""Of no row there is no score, and none that looks perfect, whatever is scored."""

from __future__ import annotations

import pytest
import torch

from multihead.inference.engine import evaluate
from multihead.models import ClassifierReadout, Decoder, Encoder, LMReadout, ModelConfig, TaskModel
from multihead.tasks import Classify, Generate, MaskedLM
from multihead.text.tokenizer import Tokenizer


@pytest.mark.parametrize("kind", [Classify, Generate, MaskedLM])
def test_no_row_is_an_error(kind: type) -> None:
    tokenizer = Tokenizer.train(["a fine film"] * 3, "char", 40)
    config = ModelConfig(vocab=len(tokenizer), dim=8, layers=1, heads=2, max_length=16, pad=tokenizer.special["pad"])
    torch.manual_seed(0)
    body = Decoder(config) if kind is Generate else Encoder(config)
    readout = ClassifierReadout(8, 2, "mean") if kind is Classify else LMReadout(config)
    options = {"start": 1, "stop": [2]} if kind is Generate else {}
    task = kind(tokenizer, ["bad", "good"] if kind is Classify else [], 16, 4, **options)
    with pytest.raises(ValueError, match="no example to score"):
        evaluate(TaskModel(body, readout), task, [])
