"""Augment SST-2 with further movie review sentences for the teacher of benchmarks/glue_sst2.toml and sst2_trec.toml.

python -m multihead.recipes.benchmarks.sst2_augment FOLDER TEACHER OUT writes, one a line, the sentences of
FOLDER/test.tsv (whose labels are not public) and those of FOLDER/train.tsv twice, with a third of their rarer words
replaced by neighbors in the embeddings of TEACHER, a trained model (Jiao et al. 2020 use GloVe).
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

MIN_WORDS = 6  # minimum words of a sentence; most rows of train are phrases of longer ones
RUN = 5  # n-gram size that two sentences must not share
COMMON = 120  # most frequent words, never replaced
NEAR, CLOSE, EXCHANGED, TIMES = 8, 0.25, 0.35, 2
TABLES = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight", "stem.embedding.weight")


def sentences(texts: Sequence[str]) -> list[str]:
    """Return texts that are not prefixes or phrases of longer ones."""
    selected, ngrams = [], set()
    for text in sorted(set(texts), key=lambda text: (-len(text), text)):
        words = text.split()
        if len(words) >= MIN_WORDS and tuple(words[:RUN]) not in ngrams:
            selected.append(text)
            ngrams |= {tuple(words[i : i + RUN]) for i in range(len(words) - RUN + 1)}
    return sorted(selected)


def nearest_words(words: Sequence[str], teacher: Path) -> dict[str, list[str]]:
    """Return the nearest neighbors, by the teacher's embeddings, of words that are one token."""
    encode = Tokenizer.from_file(str(teacher / "tokenizer.json")).encode
    known = {word: ids for word in words if len(ids := encode(" " + word, add_special_tokens=False).ids) == 1}
    weights = load_file(teacher / "model.safetensors")
    table = next(weights[name].float() for name in weights if name.endswith(TABLES))
    rows = table[[ids[0] for ids in known.values()]] - table.mean(0)
    alike = F.normalize(rows, dim=1) @ F.normalize(rows, dim=1).T
    best = alike.fill_diagonal_(-1).topk(min(NEAR, len(known)))
    names = list(known)
    return {
        word: [names[j] for j, score in zip(numbers, scores, strict=True) if score > CLOSE]
        for word, numbers, scores in zip(names, best.indices.tolist(), best.values.tolist(), strict=True)
    }


def exchange_words(texts: Sequence[str], near: dict[str, list[str]], draw: random.Random) -> Iterator[str]:
    """Yield each text with some of its words replaced, if any can be."""
    for text in texts:
        words = [draw.choice(near[w]) if near.get(w) and draw.random() < EXCHANGED else w for w in text.split()]
        if (new := " ".join(words)) != text:
            yield new


def column(file: Path, number: int) -> list[str]:
    """Return a column of a GLUE table, which has a header and no quotes."""
    lines = file.read_text(encoding="utf-8").strip().split("\n")[1:]
    return [line.split("\t")[number].strip() for line in lines]


def main(folder: str, teacher: str, out: str) -> None:
    train, test = column(Path(folder) / "train.tsv", 0), column(Path(folder) / "test.tsv", 1)
    counts = Counter(word for text in train for word in text.split())
    common = {word for word, _ in counts.most_common(COMMON)}
    near = nearest_words([word for word in counts if word.isalpha() and len(word) > 2], Path(teacher))
    near = {word: others for word, others in near.items() if word not in common}
    new = exchange_words(sentences(train) * TIMES, near, random.Random(1))
    Path(out).write_text("".join(f"{text}\n" for text in dict.fromkeys([*test, *new])), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
