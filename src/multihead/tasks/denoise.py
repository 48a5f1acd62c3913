"""denoise: encoder-decoder pre-training by text infilling (BART, Lewis et al. 2020): spans of a text become one mask
token each, and the decoder reconstructs the full text. Unlike T5, no sentinel tokens are needed, and the decoder learns
to generate complete texts, as summarization and translation require."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from multihead.kernels.chunked_cross_entropy import vocabulary_loss, vocabulary_nats
from multihead.models import LMReadout, TaskModel
from multihead.tasks.generate import PerplexityScorer
from multihead.tasks.masking import Ids, encode_with_masks, infill_spans, make_generator
from multihead.tasks.spec import SPECS
from multihead.tasks.task import IGNORE, Batch, Prediction, Scorer, Task, Values, Window
from multihead.tasks.translate import Translate

EVAL_WINDOWS = 32  # windows per evaluation batch


class Denoise(Translate):
    """Denoising pre-training.

    options: share: fraction of tokens to mask; span: mean number of tokens per mask; start, stop, decode.

    Validation masks the same tokens every time. A long text is split into windows without overlap.
    """

    spec = SPECS["denoise"]

    def validate(self, raw_input: Any, where: str) -> Values:
        return {**super().validate(raw_input, where), "fill": True}

    def encode(self, values: Values) -> list[Window]:
        if values.get("fill"):
            return [{"tokens": np.array(encode_with_masks(self.tokenizer, values["text"], self.size), dtype=np.int32)}]
        return self.encode_source(values["text"])

    def skip_reason(self, windows: Sequence[Window]) -> str:
        return (
            ""
            if any(len(self._content_tokens(window["tokens"])) for window in windows)
            else "the text has no token to mask"
        )

    def collate(self, windows: Sequence[Window]) -> Batch:
        return Task.collate(self, windows)

    def _content_tokens(self, tokens: Ids) -> Ids:
        """Strip the special tokens that the tokenizer adds around a text."""
        inside = ~np.isin(tokens, list(self.tokenizer.control.values()))
        return tokens[inside]

    def add_noise(self, batch: Batch, seed: int) -> Batch:
        """Return a batch with masked texts as source and the full texts as target."""
        mask, options = self.tokenizer.special["mask"], self.options
        share, span = float(options.get("share", 0.3)), float(options.get("span", 3.0))
        examples = []
        for row, length in zip(batch["tokens"].cpu().numpy(), batch["keep"].sum(1).tolist(), strict=True):
            tokens = row[:length]
            inside = self._content_tokens(tokens)
            first = int(np.argmax(np.isin(tokens, inside))) if len(inside) else 0
            head, tail = tokens[:first], tokens[first + len(inside) :]
            source = infill_spans(inside, share, span, mask, make_generator(seed, tokens))[
                : self.size - len(head) - len(tail)
            ]
            target = np.array([options["start"], *inside, options["stop"][0]])
            examples.append({"tokens": np.concatenate([head, source, tail]), "target": target})
        return Translate.collate(self, examples)

    def loss(self, model: TaskModel, batch: Batch) -> tuple[Tensor, Tensor]:
        pair = self.add_noise(batch, torch.initial_seed() if model.training else 0)
        hidden, labels = self.run_decoder(model, pair, self.run_encoder(model, pair))
        total = vocabulary_loss(cast(LMReadout, model.readout), hidden, labels, self.smoothing)
        return total, (labels != IGNORE).sum()

    def score_rows(self, model: TaskModel, rows: Iterable[Values]) -> Iterator[tuple[Values, Prediction]]:
        windows = ((values, window) for values in rows for window in self.encode(values))
        model.eval()
        while block := list(islice(windows, EVAL_WINDOWS)):
            pair = self.add_noise(self.collate([window for _, window in block]), 0)
            with torch.inference_mode():
                hidden, labels = self.run_decoder(model, pair, self.run_encoder(model, pair))
                nats = vocabulary_nats(cast(LMReadout, model.readout), hidden, labels).sum(1).tolist()
            for (values, _), lost, count in zip(block, nats, (labels != IGNORE).sum(1).tolist(), strict=True):
                yield values, {"nats": lost, "tokens": count}

    def postprocess(self, values: Values, windows: Sequence[Window], outputs: Sequence[Any]) -> Prediction:
        prediction = super().postprocess(values, windows, outputs)
        texts = [
            {"text": candidate["target"], "score": candidate["score"]} for candidate in prediction.get("nbest", [])
        ]
        return {"text": prediction["target"], "score": prediction["score"], **({"nbest": texts} if texts else {})}

    def scorer(self, replicates: int = 1000) -> Scorer:
        return PerplexityScorer(replicates)
