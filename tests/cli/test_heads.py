"""`multihead heads` as a person types it, from a trained model to a smaller one and back."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, multihead: Any, reviews: Any) -> Path:
    folder = tmp_path_factory.mktemp("heads")
    (folder / "train.csv").write_text(reviews(200, 0))
    (folder / "test.csv").write_text(reviews(120, 1))
    (folder / "run.toml").write_text(
        'task = "classify"\nout = "runs/a"\n[data]\ntrain = "train.csv"\ntest = "test.csv"\ntext = "review"\n'
        'label = "verdict"\n[tokenizer]\nkind = "wordpiece"\nvocab = 300\n[model]\ndim = 16\nlayers = 2\nheads = 4\n'
        "max_length = 32\n[train]\nsteps = 40\nlr = 5e-3\nbatch_tokens = 300\nthreads = 1\n"
    )
    done = multihead("train", "run.toml", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


COLUMNS = ("text=review", "label=verdict")


def test_the_report_names_the_heads(place: Path) -> None:
    page = (place / "runs" / "a" / "report.html").read_text(encoding="utf-8")
    facts = json.loads(page.partition('id="facts">')[2].partition("</script>")[0])
    (heads,) = facts["heads"]
    assert sorted(address for mine in heads["names"].values() for address in mine) == [
        f"encoder.{layer}.self.{head}" for layer in range(2) for head in range(4)
    ]
    assert {"entropy", "previous", "punctuation", "distance"} <= set(heads["statistics"])
    assert len(heads["statistics"]["entropy"]) == 2
    assert len(heads["statistics"]["entropy"][0]) == 4


def test_stats(place: Path, multihead: Any) -> None:
    done = multihead("heads", "stats", "runs/a/model", "test.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "encoder.1.self.3" in done.stdout
    assert "8 heads on 120 inputs" in done.stdout
    told = json.loads(
        multihead(
            "heads", "stats", "runs/a/model", "test.csv", "text=review", "--limit", "9", "--json", cwd=place
        ).stdout
    )
    assert told["inputs"] == 9
    assert len(told["heads"]) == 8
    assert 0 <= told["heads"]["encoder.0.self.0"]["first"] <= 1
    assert len(told["similarity"]["encoder.self"]) == 8


def test_rank(place: Path, multihead: Any) -> None:
    done = multihead("heads", "rank", "runs/a/model", "test.csv", *COLUMNS, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "agreement of ablation and gradient" in done.stdout
    assert all(f"encoder.{layer}.self.{head} " in done.stdout for layer in range(2) for head in range(4)), done.stdout
    told = json.loads(multihead("heads", "rank", "runs/a/model", "test.csv", *COLUMNS, "--json", cwd=place).stdout)
    assert told["metric"] == "accuracy"
    assert len(told["effects"]) == 8
    assert told["cost"] == {"gradient": 3.0, "ablation": 7.0}  # 1 + 4 · (2 + 1) / 2
    losses = [effect["loss"]["value"] for effect in told["effects"]]
    assert losses == sorted(losses, reverse=True)
    wrong = multihead("heads", "rank", "runs/a/model", "test.csv", *COLUMNS, "--metric", "bleu", cwd=place)
    assert wrong.returncode == 1
    assert "unknown score 'bleu'" in wrong.stderr


def test_prune_export_train_and_undo(place: Path, multihead: Any) -> None:
    done = multihead(
        "heads", "prune", "runs/a/model", "test.csv", *COLUMNS, "--keep", "50%", "--ffn", "--out", "small", "--plot",
        "curve.png", cwd=place
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (place / "curve.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert done.stdout.startswith("100% of the heads, 100% of the arithmetic: ")
    for words in (
        "heads",
        "parameters",
        "MFLOPs per token",
        "time",
        "accuracy",
        "held-out examples",
        "pruned: ",
    ):
        assert words in done.stdout
    answers = multihead("predict", "small", cwd=place, given="lovely great fine w1\n")
    assert json.loads(answers.stdout)["label"] in ("good", "bad")
    scores = json.loads(multihead("evaluate", "small", "test.csv", *COLUMNS, "--json", cwd=place).stdout)
    assert 0 <= scores["accuracy"]["value"] <= 1
    refused = multihead("export", "small", "--out", "exported", cwd=place)
    assert refused.returncode == 1  # its parent was no family's either
    assert "its original family is unknown" in refused.stderr
    undone = multihead("heads", "undo", "small", "--out", "whole", cwd=place)
    assert undone.returncode == 0, undone.stderr
    for file in (place / "runs" / "a" / "model").iterdir():
        assert (place / "whole" / file.name).read_bytes() == file.read_bytes()
    trained = multihead(
        "heads", "prune", "runs/a/model", "test.csv", *COLUMNS, "--keep", "50%", "--out", "half", "--finetune",
        "recover.toml", cwd=place,
    )  # fmt: skip
    assert trained.returncode == 1
    assert "recover.toml" in trained.stderr
    run = (place / "run.toml").read_text().replace("runs/a", "runs/b").replace("steps = 40", "steps = 5")
    (place / "recover.toml").write_text(run.partition("[tokenizer]")[0] + "[train]" + run.partition("[train]")[2])
    trained = multihead(
        "heads", "prune", "runs/a/model", "test.csv", *COLUMNS, "--keep", "50%", "--out", "half2", "--finetune",
        "recover.toml", cwd=place,
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    assert "recovered, test: accuracy" in trained.stdout
    assert trained.stdout.partition("after fine-tuning:")[2].count("held-out examples") == 1
    refused = multihead("heads", "undo", "runs/b/model", "--out", "x", cwd=place)
    assert refused.returncode == 1
    assert "was trained or saved again after pruning" in refused.stderr


def test_show(place: Path, multihead: Any) -> None:
    done = multihead("heads", "show", "runs/a/model", "lovely great fine", "--head", "encoder.1.self.2", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "encoder.1.self.2" in done.stdout
    assert "lovely" in done.stdout
    done = multihead(
        "heads",
        "show",
        "runs/a/model",
        "-",
        "--html",
        "a.html",
        "--png",
        "a.png",
        cwd=place,
        given="lovely great fine\n",
    )
    assert done.returncode == 0, done.stderr
    assert (place / "a.png").stat().st_size > 1000
    assert "lovely" in (place / "a.html").read_text(encoding="utf-8")
    (place / "text.txt").write_text("cold dull poor")
    assert multihead("heads", "show", "runs/a/model", "@text.txt", cwd=place).returncode == 0
    wrong = multihead("heads", "show", "runs/a/model", "fine", "--head", "encoder.7.self.0", cwd=place)
    assert wrong.returncode == 1
    assert "encoder.0.self.0 … encoder.1.self.3" in wrong.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("prune", "runs/a/model", "test.csv", "--out", "x"), 1, "one of them"),
        (("prune", "runs/a/model", "test.csv", "--keep", "50%"), 2, "give the directory to write"),
        (("rank", "runs/a/model", "test.csv", "--by", "guess"), 2, "use ablation, gradient or both"),
        (("stats", "runs/a/model", "test.csv", "review"), 2, "is neither a file nor of the form"),
        (("show", "runs/a/model", "fine", "--rows", "a:b"), 2, "not of the form 100:150"),
        (("undo", "runs/a/model", "--out", "x"), 1, "not a pruned model"),
        (("cut", "runs/a/model"), 2, "No such command"),
    ],
)
def test_wrong_usage_is_said(place: Path, words: tuple[str, ...], code: int, message: str, multihead: Any) -> None:
    done = multihead("heads", *words, cwd=place)
    assert done.returncode == code, done.stderr
    assert message in done.stderr
