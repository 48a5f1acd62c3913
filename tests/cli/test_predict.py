"""`multihead predict` as a stream: bad lines keep their place, chunks come out at once, memory does not grow."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow
import pytest
import torch
from pyarrow import parquet

from multihead.cli.data_arguments import override_generation
from multihead.data.readers.notation import TagNotation
from multihead.inference import Pipeline
from multihead.inference.engine import AHEAD
from multihead.inference.input_lines import InputLines, PipeReader
from multihead.inference.inputs import holds_rows, iterate_inputs, read_table
from multihead.models import ClassifierReadout, Encoder, ModelConfig, TaskModel
from multihead.models.families import native_config
from multihead.pretrained import load, save
from multihead.tasks import Translate
from multihead.text.tokenizer import Tokenizer

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
WORDS = ["a", "lovely", "fine", "film", "poor", "and", "cold", "很好"]
MEASURED = """
import sys
from multihead.cli.main import main
from multihead.machine.memory import peak_bytes
try:
    main(sys.argv[1:])
finally:
    sys.stdout.flush()
    print("peak_bytes", peak_bytes(), file=sys.stderr)
"""


def made(folder: Path, task: str, labels: list[str], **options: object) -> Path:
    """A tiny model that has learnt nothing: what it says does not matter here."""
    tokenizer = Tokenizer.train(["a lovely fine film poor and cold 很好 很差"] * 3, "wordpiece", 120)
    torch.manual_seed(0)
    config = ModelConfig(
        vocab=len(tokenizer), dim=8, layers=1, heads=2, max_length=64, positions="learned", token_types=2,
        pad=tokenizer.special["pad"],
    )  # fmt: skip
    over = "mean" if task == "classify" else "tokens"
    model = TaskModel(Encoder(config), ClassifierReadout(8, max(len(labels), 2), over)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30 if parameter.dim() > 1 else 1)  # else all inputs would look alike
    whole = Pipeline(model, native_config(model), tokenizer, labels=labels, task=task, options={"size": 32, **options})
    save(whole, folder / task)
    return folder / task


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("models"), "classify", ["bad", "good"])


def run(model: Path, *words: str, given: bytes = b"") -> tuple[int, list[dict], str]:
    command = [sys.executable, "-m", "multihead", "predict", str(model), *words]
    done = subprocess.run(command, input=given, capture_output=True, check=False, env=ENVIRONMENT)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, [json.loads(line) for line in done.stdout.split(b"\n") if line], done.stderr.decode()


BAD = [
    (b'{"text": "fine"', "bad_json"),
    (b'{"text": NaN}', "bad_json"),
    (b'{"text": "a", "text": "b"}', "bad_json"),
    (b'{"text": "\\ud83d"}', "bad_json"),
    (b'{"a":' * 5000, "bad_json"),
    (b"{'text': 'fine'}", "bad_json"),
    (b'{"text": 3}', "bad_input"),
    (b'{"text": null}', "bad_input"),
    (b'{"words": "fine"}', "bad_input"),
    (b"{}", "bad_input"),
    (b"fine \xff film", "bad_encoding"),
]


def test_bad_lines_keep_their_place(model: Path) -> None:
    lines = [line for bad, _ in BAD for line in (b"a fine film", bad)]
    code, found, said = run(model, given=b"\n".join(lines) + b"\n")
    assert code == 1
    assert len(found) == len(lines)
    assert f"{len(BAD)} of {len(lines)} inputs could not be read; the first: line 2" in said
    for number, (answer, (_, want)) in enumerate(zip(found[1::2], BAD, strict=True)):
        assert answer["error"]["code"] == want
        assert answer["error"]["message"].startswith(f"line {2 * number + 2}: ")
        assert answer.keys() == {"error"}
    assert all(answer == found[0] and "label" in answer for answer in found[::2])


def test_order_holds_over_chunks(model: Path) -> None:
    """Rows of many lengths, more than are read ahead: every answer stands where its line stood."""
    draw = random.Random(0)
    rows = [" ".join(draw.choices(WORDS, k=draw.randint(1, 20))) for _ in range(23)]
    rows = (rows * AHEAD)[: AHEAD + 300]
    rows[AHEAD - 1] = rows[AHEAD] = '{"text": 1}'
    code, found, _ = run(model, given="\n".join(rows).encode())
    assert code == 1
    assert [number for number, answer in enumerate(found) if "error" in answer] == [AHEAD - 1, AHEAD]
    _, alone, _ = run(model, given="\n".join(rows[:23]).encode())
    for number, answer in enumerate(found):
        if "error" not in answer:
            assert answer["score"] == pytest.approx(alone[number % 23]["score"], abs=1e-4)
    assert len({round(answer["score"], 4) for answer in alone}) > 10


def test_a_question_without_end_is_cut_and_told(tmp_path: Path) -> None:
    answer = made(tmp_path, "answer", [])
    good = {"question": "where?", "context": "a fine film"}
    long = {"question": "where is the fine film " * 20, "context": "a fine film"}
    lines = [json.dumps(row) for row in (good, long, good)]
    code, found, said = run(answer, given="\n".join(lines).encode())
    assert code == 0, said
    assert found[1]["input_info"]["truncated"] > 0
    assert found[0]["input_info"]["truncated"] == 0  # it tells of the unknown "?"
    assert found[0] == found[2]


def test_questions_need_no_answers_to_be_answered(tmp_path: Path) -> None:
    answer = made(tmp_path, "answer", [])
    asked = {"id": "1", "question": "who is it"}
    answered = {"id": "2", "question": "what is it", "answers": [{"text": "it", "answer_start": 0}]}
    paragraphs = [{"context": "it is Ada", "qas": [asked, answered]}, {"context": "Bo is here", "qas": [asked]}]
    file = tmp_path / "open.json"
    file.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    code, found, said = run(answer, str(file))
    assert code == 0, said
    assert [next(iter(one)) for one in found] == ["answer"] * 3


def test_words_and_raw_text_for_ner(tmp_path: Path) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"], context=5)
    rows = ['{"tokens": []}', '{"tokens": ["fine", "film"]}', "a fine film", '{"tokens": "fine"}', '{"text": ""}']
    code, found, _ = run(ner, given="\n".join(rows).encode())
    assert code == 1
    assert [len(a.get("tags", [])) for a in found] == [0, 2, 0, 0, 0]
    assert [number for number, answer in enumerate(found) if "error" in answer] == [0, 3, 4]
    assert [found[number]["error"]["code"] for number in (0, 3, 4)] == ["empty_input", "bad_input", "empty_input"]
    _, alone, _ = run(ner, given=rows[1].encode())
    assert alone[0] == found[1]  # inputs are not each other's context


def test_tables_for_ner(tmp_path: Path) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"])
    texts = ["a fine film", "poor and cold"]
    _, want, _ = run(ner, given="\n".join(texts).encode())
    for column, *named in (("text",), ("review", "text=review")):
        file = tmp_path / f"{column}.csv"
        file.write_text("\n".join([f"id,{column}", *(f"{i},{text}" for i, text in enumerate(texts))]) + "\n")
        assert run(ner, str(file), *named) == (0, want, "")
    rows = [{"review": text, "tokens": text.split()} for text in texts]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "both.parquet")
    assert run(ner, str(tmp_path / "both.parquet"), "text=review")[1] == want
    assert [len(answer["tags"]) for answer in run(ner, str(tmp_path / "both.parquet"))[1]] == [3, 3]
    code, found, _ = run(ner, str(tmp_path / "review.csv"), "tokens=review")  # in their place, not the end of the file
    assert (code, [answer["error"]["code"] for answer in found]) == (1, ["bad_input"] * 2)
    assert found[1]["error"]["message"] == "line 3: 'tokens' must be a list of words; put raw text in 'text'"


@pytest.mark.parametrize("letters", ["BILU", "BMES"])
def test_tags_are_answered_in_the_notation_of_the_file(tmp_path: Path, letters: str) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"])
    first, inside, last, single = (f"{letter}-X" for letter in letters)
    untold = {"tokens": ["很好", "film", "and", "a", "fine", "film", "poor"], "tags": ["O"] * 7}
    tagged = {"tokens": ["a", "fine", "film", "很好", "cold"], "tags": [first, inside, last, "O", single]}
    rows = [untold, tagged]
    (tmp_path / "tagged.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = (zip(row["tokens"], row["tags"], strict=True) for row in rows)
    (tmp_path / "tagged.conll").write_text("\n\n".join("\n".join(map("\t".join, pair)) for pair in pairs) + "\n")
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "tagged.parquet")
    _, plain, _ = run(ner, given="".join(json.dumps({"tokens": row["tokens"]}) + "\n" for row in rows).encode())
    assert any(tag != "O" for answer in plain for tag in answer["tags"])
    want = [TagNotation(letters).write(answer["tags"]) for answer in plain]
    for ending in ("jsonl", "conll", "parquet"):
        code, found, said = run(ner, str(tmp_path / f"tagged.{ending}"))
        assert code == 0, said
        assert [answer["tags"] for answer in found] == want
        assert [answer["text"] for answer in found] == ["很好film and a fine film poor", "a fine film很好cold"]
    piped = run(ner, given=json.dumps(tagged).encode())[1]
    assert piped[0]["tags"] == want[1]


def test_tags_that_are_wrong_do_not_hinder_an_answer(tmp_path: Path) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"])
    (tmp_path / "mixed.conll").write_text("a O\nfine U-X\nfilm I-X\n\npoor B-X\nand X-Y\n")
    code, found, said = run(ner, str(tmp_path / "mixed.conll"))
    assert (code, len(found)) == (0, 2), said


def test_columns_of_a_user_are_not_taken_for_ours(tmp_path: Path) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"])
    plain = {"tokens": ["a", "fine", "film"]}
    odd = {**plain, "shown": 1, "at": 2, "notation": "BMES", "belief": "x", "file": 3}
    _, found, said = run(ner, given="".join(json.dumps(row) + "\n" for row in (plain, odd)).encode())
    assert found[0] == found[1], said


def test_words_a_line_are_read_as_sentences(tmp_path: Path) -> None:
    ner = made(tmp_path, "ner", ["O", "B-X", "I-X"])
    (tmp_path / "new.conll").write_text("a O\nfine B-X\nfilm I-X\n\npoor O\nand O\n")
    (tmp_path / "rows.jsonl").write_text('{"tokens": ["a", "fine", "film"]}\n{"tokens": ["poor", "and"]}\n')
    assert run(ner, str(tmp_path / "new.conll"))[1] == run(ner, str(tmp_path / "rows.jsonl"))[1]


def test_other_encodings_and_formats(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes("text\ncafé fine\n".encode("latin-1"))
    (tmp_path / "in.txt").write_bytes("café fine\n".encode("latin-1"))
    (tmp_path / "in.dat").write_text("text;id\ncafé fine;1\n", encoding="utf-8")
    _, want, _ = run(model, given="café fine".encode())
    for name, how in (("csv", "encoding=latin-1"), ("txt", "encoding=latin-1"), ("dat", "format=csv")):
        assert run(model, str(tmp_path / f"in.{name}"), how) == (0, want, "")
    assert "unknown encoding 'foo'" in run(model, "encoding=foo", given=b"fine")[2]
    assert "convert the file to UTF-8" in run(model, "encoding=utf-16", given=b"fine")[2]
    assert "set encoding=latin-1" in run(model, str(tmp_path / "in.txt"))[1][0]["error"]["message"]


def test_files(model: Path, tmp_path: Path) -> None:
    lines = b'\xef\xbb\xbf{"text": "fine"}\r\n\r\n"cold"\n[1, 2]\ncold\n'
    (tmp_path / "in.jsonl").write_bytes(lines)
    with gzip.open(tmp_path / "in.jsonl.gz", "wb") as packed:
        packed.write(lines)
    (tmp_path / "in.txt").write_bytes(lines)
    (tmp_path / "none.txt").write_bytes(b"")
    code, found, _ = run(model, str(tmp_path / "in.jsonl"))
    assert (code, [answer.get("error", {}).get("code") for answer in found]) == (
        1,
        [None, "empty_input", None, "bad_input", "bad_json"],
    )
    assert run(model, str(tmp_path / "in.jsonl.gz"))[:2] == (1, found)
    code, text, _ = run(model, str(tmp_path / "in.txt"))
    assert (code, len(text)) == (1, 5)
    assert run(model, str(tmp_path / "none.txt"))[:2] == (0, [])
    code, _, said = run(model, str(tmp_path / "in.jsonn"))
    assert code == 1
    assert "did you mean 'in.jsonl'" in said
    code, _, said = run(model, str(tmp_path))
    assert "a directory" in said
    broken = (tmp_path / "in.jsonl.gz").read_bytes()[:-12]
    (tmp_path / "cut.jsonl.gz").write_bytes(broken)
    code, _, said = run(model, str(tmp_path / "cut.jsonl.gz"))
    assert code == 1
    assert "broken gzip" in said


def test_a_chunk_is_answered_before_the_stream_ends(model: Path) -> None:
    command = [sys.executable, "-m", "multihead", "predict", str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"a fine film\n" * AHEAD)
        child.stdin.flush()
        answers = [json.loads(child.stdout.readline()) for _ in range(AHEAD)]  # stdin is still open
        assert len(answers) == AHEAD
        child.stdin.write(b"{\n")
        child.stdin.close()
        assert "error" in json.loads(child.stdout.readline())
        assert child.wait(60) == 1


def test_a_pipe_answers_what_there_is(model: Path) -> None:
    """Whoever writes a line and waits gets the answer, of an empty line too; half a line is nothing to wait for."""
    command = [sys.executable, "-m", "multihead", "predict", str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stuck = threading.Timer(120, child.kill)  # else a fault here would wait for ever
        stuck.start()
        for said in (b"a fine film\n", b"cold\n\n", b"a poor film\n{", b'"text": "fine"}\n'):
            child.stdin.write(said)
            child.stdin.flush()
            assert b"label" in child.stdout.readline()
            if said.endswith(b"\n\n"):
                assert b"empty_input" in child.stdout.readline()
        child.stdin.write(b"cold\nfine")
        child.stdin.close()
        assert len(child.stdout.readlines()) == 2
        assert child.wait(60) == 1  # for the empty line
        stuck.cancel()


def test_lines_of_a_pipe() -> None:
    out, into = os.pipe()
    pipe = PipeReader(out)
    assert pipe.idle(0.0)
    os.write(into, b"\n \r\nab")
    assert not pipe.idle(0.0)  # an empty line is an input too
    os.write(into, b"cdefgh\nij\nk")
    assert not pipe.idle(0.0)
    assert [pipe.readline(5) for _ in range(5)] == [b"\n", b" \r\n", b"abcde", b"fgh\n", b"ij\n"]
    assert pipe.idle(0.01)
    os.close(into)
    assert not pipe.idle(1.0)  # there is nothing to wait for
    assert [pipe.readline(5) for _ in range(2)] == [b"k", b""]
    os.close(out)


def test_a_prompt_answers_at_once(model: Path) -> None:
    command = [sys.executable, "-m", "multihead", "predict", str(model), "-i"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        for line, key in ((b"a fine film\n", b"label"), (b"{\n", b"error"), (b"cold\n", b"label")):
            child.stdin.write(line)
            child.stdin.flush()
            assert key in child.stdout.readline()
        child.stdin.close()
        assert child.wait(60) == 1


def test_a_reader_that_leaves_is_no_fault(model: Path) -> None:
    text = "yes 'a fine film' | head -n 20000"
    command = f"{text} | {sys.executable} -m multihead predict {model} | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=False, env=ENVIRONMENT)
    assert done.stderr == b""
    assert b"label" in done.stdout


def peak_of(*words: str) -> int:
    """The most memory that a command held, in bytes."""
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], capture_output=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return int(done.stderr.split(b"peak ")[1].split()[0])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_set(model: Path, tmp_path: Path) -> None:
    peaks: dict[str, dict[int, int]] = {"predict": {}, "evaluate": {}}
    for count in (20_000, 200_000):
        file = tmp_path / f"{count}.jsonl"
        with file.open("w") as out:
            for number in range(count):
                text = " ".join(WORDS[number * k % 8] for k in range(1, 4 + number % 7))
                out.write(json.dumps({"text": f"{text} {number}", "label": ("good", "bad")[number % 3 == 0]}) + "\n")
        for verb in peaks:
            peaks[verb][count] = peak_of(verb, str(model), str(file))
    for verb, (few, many) in ((verb, tuple(found.values())) for verb, found in peaks.items()):
        print(f"{verb}: {few / 2**20:.1f} MiB at 20,000 rows, {many / 2**20:.1f} MiB at 200,000")
        assert many - few < 30 * 2**20


@pytest.mark.parametrize("text", ["a\n\nb\n", "\n\na\n \nb\n\n", "a\nb\n\n", "\u3000\na", '{"text": " "}\nfine\n'])
@pytest.mark.parametrize("way", ["txt", "jsonl", "csv", "stdin"])
def test_every_line_has_its_answer(text: str, way: str, model: Path, tmp_path: Path) -> None:
    """Else whoever pastes answers beside their lines has them off by some; empty text is one fault in all formats."""
    lines = text.removesuffix("\n").split("\n")
    bare = ["" if line.startswith("{") else line for line in lines]
    empty = [not line.strip() for line in bare]
    if way == "jsonl":
        text = "\n".join(json.dumps({"text": line}) for line in bare)
    elif way == "csv":
        text = "text,id\n" + "\n".join(f'"{line}",{number}' for number, line in enumerate(bare))
    file = tmp_path / f"in.{way}"
    file.write_text(text)
    code, found, said = run(model, given=text.encode()) if way == "stdin" else run(model, str(file))
    assert code == 1
    assert [answer.get("error", {}).get("code") == "empty_input" for answer in found] == empty
    assert f"{sum(empty)} of {len(lines)} inputs could not be read" in said


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("way", ["fifo", "substitution", "stdin", "dash", "format"])
def test_a_pipe_loses_nothing(way: str, packed: bool, model: Path, tmp_path: Path) -> None:
    """More than the 64 KiB that a look at the head takes, of which a pipe opened again had lost the first."""
    rows = [f"a fine film {number}" for number in range(5000)]
    content = "\n".join((["text"] if way == "format" else []) + rows).encode() + b"\n"
    (tmp_path / "in").write_bytes(gzip.compress(content) if packed else content)
    os.mkfifo(tmp_path / "pipe")
    predict = f"{sys.executable} -m multihead predict {model}"
    command = {
        "fifo": f"cat {tmp_path}/in > {tmp_path}/pipe & {predict} {tmp_path}/pipe",
        "substitution": f"{predict} <(cat {tmp_path}/in)",
        "stdin": f"cat {tmp_path}/in | {predict} /dev/stdin",
        "dash": f"cat {tmp_path}/in | {predict}",
        "format": f"{predict} <(cat {tmp_path}/in) format=csv",
    }[way]
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, env=ENVIRONMENT, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.count(b'"label"') == len(rows) == len(done.stdout.splitlines())


def test_python_refuses_empty_texts(model: Path) -> None:
    for empty in ("", " \u3000", {"text": "\n"}):
        with pytest.raises(ValueError, match="input 1: empty text"):
            load(model).predict(["fine", empty])


def test_tables_with_empty_lines_wide_letters_and_no_names(model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("text,id\nfine film,1\nbad film,2\n\n")
    (tmp_path / "wide.csv").write_text("text,id\nfine film,1\nbad film,2\n", encoding="utf-16")
    (tmp_path / "bare.csv").write_text("fine film\nbad film\n")
    code, want, _ = run(model, str(tmp_path / "empty.csv"))
    assert (code, len(want), want.pop()["error"]["code"]) == (1, 3, "empty_input")
    code, found, said = run(model, str(tmp_path / "wide.csv"), "encoding=utf-16")
    assert (code, found) == (0, want), said
    code, found, said = run(model, str(tmp_path / "bare.csv"), "text=1")
    assert (code, found) == (0, want[1:])
    assert "bare.csv:1: taken as names of columns" in said


def rows(model: Path, file: Path, **named: str) -> list[str]:
    """What `predict` reads of a file: the texts, or why there is none."""
    task = load(str(model)).make_task()
    source = InputLines(str(file))
    found = (
        read_table(file, task, named, {}, print)
        if source.table or holds_rows(file, task, {})
        else iterate_inputs(source, task, dict(named), {})
    )
    return [row["error"]["message"] if "error" in row else row["text"] for row in found]


def test_a_column_that_is_not_there_is_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "fine", "review": "cold"}\n{"text": "fine"}\n')
    first, second = rows(model, tmp_path / "in.jsonl", text="review")
    assert first == "cold"
    assert "line 2: no column 'review' for text; the file has: text" in second


def test_a_text_may_begin_with_a_brace(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text('{fine} film\n{"text": "cold"}\n{\n')
    text, of_object, broken = rows(model, tmp_path / "in.txt")
    assert (text, of_object) == ("{fine} film", "cold")
    assert "not JSON" in broken


def test_what_training_reads_is_predicted(model: Path, tmp_path: Path) -> None:
    """Tables without names, by the columns of the training data; arrays of JSON."""
    given = [("fine film", "good"), ("poor film", "bad"), ("a fine film", "good")]
    for name, mark in (("tsv", "\t"), ("csv", ",")):
        (tmp_path / f"in.{name}").write_text("".join(f"{mark.join(row)}\n" for row in given))
    (tmp_path / "in.json").write_text(json.dumps([{"text": text, "label": label} for text, label in given], indent=1))
    with gzip.open(tmp_path / "in.json.gz", "wb") as packed:
        packed.write((tmp_path / "in.json").read_bytes())
    (tmp_path / "lines.json").write_text("".join(json.dumps({"text": text}) + "\n" for text, _ in given))
    for name in ("in.tsv", "in.csv", "in.json", "in.json.gz", "lines.json"):
        assert rows(model, tmp_path / name) == [text for text, _ in given], name
    (tmp_path / "more.tsv").write_text("".join(f"{text}\t{label}\t1\n" for text, label in given))
    with pytest.raises(ValueError, match=r"no column 'text' for text; .* or its number from 1"):
        rows(model, tmp_path / "more.tsv")
    assert rows(model, tmp_path / "more.tsv", text="1") == [text for text, _ in given]


def test_what_a_hub_model_says_of_writing_can_be_changed():
    """Whatever stands in its generation_config.json, where it is sound there."""
    settings = {"beam": 3, "length_penalty": -0.7, "early": "full", "forbidden": (5,)}
    task = Translate(Tokenizer.train(["a fine film"], "bpe", 270), [], 32, 0, decode=dict(settings))
    assert override_generation(task, ["decode.nbest=2", "text=source"]) == ["text=source"]
    assert task.settings == {**settings, "nbest": 2}
