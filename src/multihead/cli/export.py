"""`multihead export`: write a model in another library's layout, or one task of a multi-task model."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.app import verb

app = verb()
# transformers' auto classes are named by the end of the architecture, except these
OTHERS = {
    "LMHeadModel": "ForCausalLM",
    "MTModel": "ForSeq2SeqLM",
    "EncoderModel": "ForTextEncoding",
    "WhisperForConditionalGeneration": "ForSpeechSeq2Seq",
    "ForConditionalGeneration": "ForSeq2SeqLM",
}


class ExportFormat(StrEnum):
    transformers = "transformers"
    multihead = "multihead"


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="A model's directory, a .gguf file, or hub:owner/name.")],
    out: Annotated[Path, typer.Option(help="Directory to write; it must be new or empty.")],
    to: Annotated[ExportFormat, typer.Option(help="The layout to write.")] = ExportFormat.transformers,
    task: Annotated[
        str | None, typer.Option(help="The task to export, if the model has several; default: the shared encoder.")
    ] = None,
) -> None:
    """Write a model so that another library loads it with the same outputs.

    A model that the library cannot represent is an error, with the reason. Our own layout (--to multihead) supports
    all models: one of several tasks becomes a separate model, which can be fine-tuned or pruned without the others.

    \b
    Example:
      multihead export runs/ner/model --to transformers --out exported
      multihead export runs/several/model --task trec --to multihead --out trec
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):  # before the import: answered at once
        raise ValueError(f"{out}: not an empty directory; give a new one")
    from multihead.pretrained import load, save
    from multihead.pruning import pad_pruned_model

    pruned = load(model, dtype=None, task=task)
    if to is ExportFormat.multihead:
        save(pruned, out)
        print(f"{out}: open it with multihead.load({str(out)!r})")
        return
    loaded = pad_pruned_model(pruned)
    save(loaded, out, family=True)
    if loaded is not pruned:
        print(
            f"{model}: transformers does not support pruned heads: they are padded with zeros, the outputs are the same"
        )
    how = f"transformers.{opener(loaded.architecture)}.from_pretrained({str(out)!r})"
    print(f"{out}: {loaded.architecture}; open it with {how}")


def opener(architecture: str) -> str:
    """Return transformers' auto class that loads an architecture, or its own class where there is none."""
    if architecture.endswith("WithProjection"):
        return architecture
    suffix = next((OTHERS[end] for end in OTHERS if architecture.endswith(end)), None)
    _, middle, kind = architecture.rpartition("For")
    return f"AutoModel{suffix or (middle + kind if middle else '')}"
