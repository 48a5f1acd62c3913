"""`multihead export`: a model's directory in another library's layout, or one task of several on its own."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.app import verb

app = verb()
# transformers' classes that open any family are called as the architecture's end, but for these
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
    out: Annotated[Path, typer.Option(help="Folder to write; it must be new or empty.")],
    to: Annotated[ExportFormat, typer.Option(help="Whose layout.")] = ExportFormat.transformers,
    task: Annotated[
        str | None, typer.Option(help="Of a model with several tasks, the name of one; else the trunk alone.")
    ] = None,
) -> None:
    """Write a model so that another library opens it with the same answers.

    A model that has no place there is refused, with the reason. Our own layout (--to multihead) has a place for all:
    one of several tasks becomes a model of its own, which can be trained on, or pruned, without the others.

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
        print(f"{model}: transformers knows no pruned heads: zeros stand in their places, the answers are the same")
    how = f"transformers.{opener(loaded.architecture)}.from_pretrained({str(out)!r})"
    print(f"{out}: {loaded.architecture}; open it with {how}")


def opener(architecture: str) -> str:
    """The class of transformers that opens a model whole, whatever its family."""
    other = next((OTHERS[end] for end in OTHERS if architecture.endswith(end)), None)
    _, middle, kind = architecture.rpartition("For")
    return f"AutoModel{other or (middle + kind if middle else '')}"
