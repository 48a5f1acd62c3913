"""`multihead heads`: inspect attention heads, measure how much a task needs them, prune them."""

from __future__ import annotations

from multihead.cli.app import verb
from multihead.cli.heads import prune, rank, show, stats, undo

app = verb()


@app.callback()
def heads() -> None:
    """Inspect a model's attention heads, rank them, prune them.

    A head's address is stack.layer.kind.head: encoder.2.self.3, decoder.0.cross.5.

    \b
    Example:
      multihead heads show runs/ner/model "Angela Merkel visited Beijing." --html heads.html
      multihead heads stats runs/ner/model test.txt
      multihead heads rank runs/ner/model valid.txt --early
      multihead heads prune runs/ner/model valid.txt --budget "f1 -0.5" --out runs/ner/small
      multihead heads undo runs/ner/small --out runs/ner/whole
    """


app.command(short_help="show the attention of heads in a text: terminal, PNG, HTML page")(show.show)
app.command(short_help="profile every head over a dataset, with a name for it")(stats.stats)
app.command(short_help="rank heads by how much the model's task needs them")(rank.rank)
app.command(short_help="prune heads into a smaller model, with its cost")(prune.prune)
app.command(short_help="restore a pruned model's parent, byte for byte")(undo.undo)
