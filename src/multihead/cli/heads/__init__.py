"""`multihead heads`: see what every head does, ask what a task loses without it, cut out what it can spare."""

from __future__ import annotations

from multihead.cli.app import verb
from multihead.cli.heads import prune, rank, show, stats, undo

app = verb()


@app.callback()
def heads() -> None:
    """Look into a model's heads, rank them, cut them out.

    A head's address is stack.layer.kind.head: encoder.2.self.3, decoder.0.cross.5.

    \b
    Example:
      multihead heads show runs/ner/model "Angela Merkel visited Beijing." --html heads.html
      multihead heads stats runs/ner/model test.txt
      multihead heads rank runs/ner/model valid.txt --early
      multihead heads prune runs/ner/model valid.txt --budget "f1 -0.5" --out runs/ner/small
      multihead heads undo runs/ner/small --out runs/ner/whole
    """


app.command(short_help="what the heads look at in a text: terminal, PNG, HTML page")(show.show)
app.command(short_help="what every head does over a file, with a name for it")(stats.stats)
app.command(short_help="how much the model's task needs each head")(rank.rank)
app.command(short_help="cut heads out into a smaller model, with a bill")(prune.prune)
app.command(short_help="make a pruned model's parent again, byte for byte")(undo.undo)
