"""Several tasks on one trunk, through the commands as a person types them."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from multihead.pretrained import load

GOOD, BAD = ["fine", "lovely", "great"], ["dull", "cold", "poor"]
TYPES = {"who": "PERSON", "where": "PLACE", "when": "TIME"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, multihead: Any) -> Path:
    folder, pick = tmp_path_factory.mktemp("place"), random.Random(0)
    moods = [(pick.choices(words, k=3), label) for words, label in [(GOOD, "good"), (BAD, "bad")] * 40]
    asked = [(f"{word} w{pick.randint(0, 9)}", kind) for word, kind in [*TYPES.items()] * 20]
    (folder / "mood.csv").write_text("text,label\n" + "".join(f"{' '.join(a)},{b}\n" for a, b in moods))
    (folder / "type.csv").write_text("question,label\n" + "".join(f"{a},{b}\n" for a, b in asked))
    (folder / "run.toml").write_text(
        'out = "runs/a"\n[tokenizer]\nkind = "wordpiece"\nvocab = 200\n[model]\ndim = 16\nlayers = 1\nheads = 2\n'
        "max_length = 32\n[train]\nsteps = 200\nlr = 1e-2\nbatch_tokens = 200\nthreads = 1\n"
        '[[tasks]]\nname = "mood"\ntask = "classify"\ndata = {train = "mood.csv"}\n'
        '[[tasks]]\nname = "type"\ntask = "classify"\n[tasks.data]\ntrain = "type.csv"\ntest = "type.csv"\n'
        'text = "question"\n'
    )
    done = multihead("train", "run.toml", cwd=folder)
    assert done.returncode == 0, done.stderr
    for words in ("mood: 2 labels", "type: 3 labels", "validation mean", "  mood: accuracy"):
        assert words in done.stdout, words
    assert re.search(r"loss (mood|type) \d\.\d+, (mood|type) \d\.", done.stdout)
    return folder


def test_each_task_has_its_scores_and_its_page(place: Path) -> None:
    scores = json.loads((place / "runs/a/metrics.json").read_text())["tasks"]
    assert scores["type"]["test"]["accuracy"]["value"] > 0.95
    assert scores["mood"].keys() == {"valid"}
    for name in ("report.html", "report-mood.html", "report-type.html"):
        assert (place / "runs/a" / name).is_file()
    page = (place / "runs/a/report.html").read_text()
    for words in ("mood: accuracy", "type: accuracy", "mood: training loss", "validation mean", "readouts.safetensors"):
        assert words in page, words


def test_predict_and_evaluate_by_name(place: Path, multihead: Any) -> None:
    done = multihead("predict", "runs/a/model", "--task", "type", cwd=place, given="where w3\n")
    assert json.loads(done.stdout)["label"] == "PLACE"
    done = multihead("predict", "runs/a/model", cwd=place, given="where w3\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert "several tasks: mood, type; choose one: --task mood" in done.stderr
    done = multihead(
        "evaluate", "runs/a/model", "type.csv", "text=question", "--task", "type", "--json", cwd=place
    )  # fmt: skip
    want = json.loads((place / "runs/a/metrics.json").read_text())["tasks"]["type"]["test"]["accuracy"]["value"]
    assert json.loads(done.stdout)["accuracy"]["value"] == want
    done = multihead("evaluate", "runs/a/model", "type.csv", "--task", "typ", cwd=place)
    assert (done.returncode, "unknown task 'typ'; known: mood, type" in done.stderr) == (1, True)


def test_heads_export_compare_and_check_by_name(place: Path, multihead: Any) -> None:
    done = multihead("heads", "rank", "runs/a/model", "type.csv", "text=question", "--task", "type", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "encoder.0.self.1" in done.stdout
    asked = ("heads", "stats", "runs/a/model", "mood=mood.csv", "type=type.csv", "text=question")
    done = multihead(*asked, cwd=place)
    assert re.search(r"mood and type have \d+ % of what they use in common", done.stdout), done.stderr
    shares = json.loads(multihead(*asked, "--json", cwd=place).stdout)["shares"]
    assert {name: pytest.approx(1.0) for name in ("mood", "type")} == {n: sum(mine) for n, mine in shares.items()}
    done = multihead("heads", "stats", "runs/a/model", "mood=mood.csv", cwd=place)
    assert "mood: pass at least two tasks to compare" in done.stderr
    done = multihead("export", "runs/a/model", "--out", "x", "--task", "mood", cwd=place)
    assert "cannot be saved for transformers" in done.stderr  # rotary positions: no family's
    done = multihead("heads", "prune", "runs/a/model", "mood.csv", "--keep", "50%", "--out", "p", cwd=place)
    assert (done.returncode, (place / "p").exists()) == (1, False)
    assert "export runs/a/model --task mood --to multihead --out FOLDER" in done.stderr
    done = multihead("export", "runs/a/model", "--out", "mood", "--task", "mood", "--to", "multihead", cwd=place)
    assert done.returncode == 0, done.stderr
    assert load(place / "mood", task="mood").name == "mood"
    done = multihead("heads", "prune", "mood", "mood.csv", "--keep", "50%", "--out", "p", cwd=place)
    assert done.returncode == 0, done.stderr
    done = multihead("predict", "p", cwd=place, given="fine great\n")
    assert json.loads(done.stdout)["label"] == "good"
    done = multihead("compare", "runs/a/model", "runs/a/model", "mood.csv", "--task", "mood", cwd=place)
    assert "only the second has right: 0" in done.stdout, done.stderr
    done = multihead("check", "run.toml", cwd=place)
    assert "mood/train: 80 rows" in done.stdout
    assert "type/train: 60 rows" in done.stdout
