"""Run files: what is read is what is written, and what is wrong is named with its place."""

import os
import re
import tomllib
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from multihead.config import RunConfig, difference, from_task, pin_paths, read, template, write
from multihead.config.errors import suggestion
from multihead.config.parse import FILES
from multihead.config.run_config import ONLY_PAIRS, SECTIONS
from multihead.config.sections import DISTILLATION_KEYS, ROLES, TrainSection
from multihead.config.toml import format_toml, line_of
from multihead.tasks.sections import Section
from multihead.tasks.spec import SPECS

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
PLACES = TEXTS.filter(lambda name: "\0" not in name and not name.startswith("~/"))
NER = 'task = "ner"\nfrom = "m"\n[data]\ntrain = "x.conll"\n'


# Values for every key, made from its type and limits: a new key is tested without a line here.


def values(kind: Any, limits: list[Any]) -> st.SearchStrategy[Any]:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        nested = [m for x in inner[1:] for m in (x.metadata if isinstance(x, FieldInfo) else [x])]
        return values(inner[0], limits + nested)
    if origin in (Union, types.UnionType):
        return st.one_of(*(values(part, limits) for part in inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple:
        return st.lists(TEXTS, max_size=3)
    if origin is dict:
        return st.dictionaries(TEXTS, values(inner[1], []), min_size=1, max_size=3)
    low: Any = next((m.ge for m in limits if isinstance(m, annotated_types.Ge)), None)
    above = next((m.gt for m in limits if isinstance(m, annotated_types.Gt)), None)
    high = next((m.le for m in limits if isinstance(m, annotated_types.Le)), None)
    below = next((m.lt for m in limits if isinstance(m, annotated_types.Lt)), None)
    if kind is int:
        return st.integers(low, below - 1 if high is None else high)
    if kind is float:
        bounds: dict[str, Any] = {
            "min_value": low if above is None else above,
            "max_value": high if below is None else below,
        }
        return st.floats(
            **bounds,
            exclude_min=above is not None,
            exclude_max=below is not None,
            allow_nan=False,
            allow_infinity=False,
        )
    return {str: TEXTS, bool: st.booleans(), type(None): st.none()}[kind]


def tables(section: type[Section], without: tuple[str, ...] = ()) -> st.SearchStrategy[dict[str, Any]]:
    fields = {name: field for name, field in section.model_fields.items() if name not in without}
    return st.fixed_dictionaries(
        {}, optional={name: values(field.annotation, list(field.metadata)) for name, field in fields.items()}
    )


@st.composite
def datas(draw: st.DrawFn, task: str) -> dict[str, Any]:
    others = tuple(role for role in ROLES if role not in SPECS[task].columns)
    files = st.one_of(TEXTS, st.lists(TEXTS, min_size=1, max_size=2))
    data = draw(tables(SECTIONS["data"], (*others, "train", "encoding", "weights"))) | {"train": draw(files)}
    assume("\0" not in "".join(name for side in (*FILES, "teacher") for name in data.get(side, "")))
    return data


@st.composite
def runs(draw: st.DrawFn) -> RunConfig:
    task = draw(st.sampled_from(sorted(SPECS)))
    scratch = draw(st.booleans())
    sections: dict[str, Any] = {task: draw(tables(SECTIONS[task])), "data": draw(datas(task))}
    if scratch:
        heads, times = draw(st.integers(1, 8)), draw(st.integers(1, 8))
        hidden = {} if SPECS[task].body == "encoder_decoder" else ONLY_PAIRS
        sections["tokenizer"] = draw(tables(SECTIONS["tokenizer"], hidden.get("tokenizer", ())))
        without = ("heads", "dim", "kv_heads", "max_length", *hidden.get("model", ()))
        sections["model"] = draw(tables(SECTIONS["model"], without))
        sections["model"] |= {"heads": heads, "dim": heads * 2 * times}
    else:
        sections["from_"] = draw(PLACES | st.fixed_dictionaries({"encoder": PLACES, "decoder": PLACES}))
        sections["window"] = {"size": 100, "overlap": draw(st.integers(0, 99))}
    if SPECS[task].generates_text:
        sections["decode"] = draw(tables(SECTIONS["decode"], ("beam", "nbest", "sample", "min_length", "alignment")))
    train = draw(tables(TrainSection, ("keep_checkpoints",)))
    if train.get("steps") is None and train.get("epochs", 3) is None:
        del train["epochs"]
    if train.get("steps") is not None:
        train["epochs"] = None
    return from_task(task, out=draw(PLACES), train=train, **sections)


@given(runs())
@settings(max_examples=200, deadline=None)
def test_what_is_written_reads_the_same(run: RunConfig) -> None:
    text = write(run)
    assert read(text) == run
    assert write(read(text)) == text
    assert difference(run, read(text)) == []
    pinned = pin_paths(run)
    assert read(write(pinned)) == pinned == pin_paths(pinned)
    assert difference(run, pinned) == []


@given(TEXTS | st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_values_are_toml(text: str, whole: int, number: float, yes: bool) -> None:
    assume(not re.search("[\ud800-\udfff]", text))
    value = {"a": text, text: [whole, number, yes, {"b": [text]}], "": ()}
    back = tomllib.loads(f"v = {format_toml(value)}")["v"]
    assert back == value | {"": []}
    assert repr(back[text] if text else 0) == repr(value[text] if text else 0)  # -0.0, and 1 is not 1.0


def test_numbers_look_as_people_write_them() -> None:
    assert [format_toml(x) for x in (5e-4, 3e-5, 1.5e-4, 0.01, 1.0, 0.0)] == [
        "5e-4",
        "3e-5",
        "1.5e-4",
        "0.01",
        "1.0",
        "0.0",
    ]


@given(st.floats(1e-12, 1), st.integers(1, 10_000), PLACES)
def test_overrides(lr: float, epochs: int, name: str) -> None:
    run = read(NER, [f"train.lr={lr!r}", f" train . epochs = {epochs}", f"out={format_toml(name)}"])
    assert (run.train.lr, run.train.epochs, run.out) == (lr, epochs, name)
    assert run.from_ == "m"


def test_overrides_fall_back_to_text() -> None:
    for value in ("runs/b", "2026-01-01", "a b", "x=y", "[1", "runs/中文", "1\nx = 2"):
        assert read(NER, [f"out={value}"]).out == value
    run = read(NER, ["data.tokens=1", "ner.crf=true", 'train.freeze=["embeddings"]', "window.size=128"])
    assert (run.data.tokens, run.ner.crf, run.train.freeze, run.window.size) == ("1", True, ("embeddings",), 128)
    assert read(NER, ["from="]).from_scratch
    assert read(NER, ["from={encoder='a', decoder='b'}"]).from_ == {"encoder": "a", "decoder": "b"}


def test_a_model_that_is_typed_takes_the_place_of_a_new_one() -> None:
    text = 'task = "ner"\n[data]\ntrain = "x"\n[tokenizer]\nvocab = 500\n[model]\ndim = 8\n'
    assert read(text, ["from=m"]).from_ == "m"
    assert read(text, ["from="]).model.dim == 8
    with pytest.raises(ValueError, match="model is for training from scratch"):
        read(text, ["from=m", "model.dim=16"])


def test_steps_take_the_place_of_epochs() -> None:
    run = read(NER + "[train]\nepochs = 7\n", ["train.steps=50"])
    assert (run.train.epochs, run.train.steps) == (None, 50)
    run = read(NER + "[train]\nsteps = 7\n", ["train.epochs=2"])
    assert (run.train.epochs, run.train.steps) == (2, None)
    assert read(NER + "[train]\nsteps = 7\n").train.epochs is None
    with pytest.raises(ValueError, match=r"^override 'train\.steps=1': train\.steps and epochs exclude each other"):
        read(NER, ["train.epochs=2", "train.steps=1"])


def test_defaults() -> None:
    run = read(NER)
    assert (run.train.epochs, run.train.batch_tokens, run.train.lr, run.train.schedule) == (3, 1024, 1e-4, "linear")
    assert (run.train.warmup, run.train.weight_decay, run.train.clip, run.out) == (0.1, 0.01, 1.0, "runs/ner")
    assert run.data.columns == {"tokens": "tokens", "tags": "tags"}
    assert read(NER.replace('from = "m"\n', "")).train.lr == 5e-4
    assert read(NER.replace('from = "m"', "train.lr = 2e-3")).train.lr == 2e-3
    assert RunConfig(task="ner", data=run.data, train=TrainSection(clip=0.5)).train == TrainSection(clip=0.5, lr=5e-4)
    with pytest.raises(ValueError, match="frozen"):
        run.out = "x"


# Paths


def test_data_lies_beside_the_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    path = tmp_path / "recipes" / "run.toml"
    path.write_text(
        'task = "ner"\nfrom = "m"\nout = "o"\ndata.train = ["a", "../b", "/c", "~root"]\ndata.valid = "v"\n',
        "utf-8-sig",
    )
    monkeypatch.chdir(tmp_path)
    for source in (path, str(path), "recipes/run.toml", Path("recipes/run.toml")):
        run = read(source, ["data.test=t"])
        assert run.data.train == (
            str(tmp_path / "recipes/a"),
            str(tmp_path / "b"),
            "/c",
            str(tmp_path / "recipes/~root"),
        )
        assert run.data.valid == str(tmp_path / "recipes/v")
        assert run.data.test == str(tmp_path / "t"), "what is typed is relative to where it is typed"
        assert (run.from_, run.out) == ("m", "o")
    copy = tmp_path / "run.toml"
    copy.write_text(write(run), "utf-8")
    monkeypatch.chdir("/")
    assert read(copy) == run
    assert from_task("ner", data={"train": "~/x"}).data.train == os.path.expanduser("~/x")


def test_a_model_that_is_not_here_may_lie_beside_the_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes" / "m").mkdir(parents=True)
    path = tmp_path / "recipes" / "run.toml"
    path.write_text(NER, "utf-8")
    monkeypatch.chdir(tmp_path)
    assert read(path).from_ == str(tmp_path / "recipes" / "m")
    path.write_text(NER.replace('"m"', '{encoder = "m", decoder = "hub:a/b"}'), "utf-8")
    assert read(path).from_ == {"encoder": str(tmp_path / "recipes" / "m"), "decoder": "hub:a/b"}
    assert read(path, ["from=m"]).from_ == "m", "what is typed is relative to where it is typed"
    (tmp_path / "m").mkdir()
    path.write_text(NER, "utf-8")
    assert read(path).from_ == "m"


def test_pinned_paths_mean_the_same_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    models = '{encoder = "m/../m", decoder = "hub:a/b"}'
    text = f'task = "classify"\nfrom = {models}\nout = "o"\ndata = {{train = "x", teacher = ["t", "hub:a/b"]}}\n'
    pinned = pin_paths(read(text))
    assert (pinned.out, pinned.from_) == (str(tmp_path / "o"), {"encoder": str(tmp_path / "m"), "decoder": "hub:a/b"})
    assert pinned.data.teacher == (str(tmp_path / "t"), "hub:a/b")
    assert pinned.data.train == str(tmp_path / "x")
    block = '[[tasks]]\nname = "a"\ntask = "classify"\ndata = {train = "x", teacher = "t"}\n'
    assert pin_paths(read(block)).tasks[0].data.teacher == str(tmp_path / "t")
    assert pin_paths(read(block)).from_ is None
    monkeypatch.chdir("/")
    assert read(write(pinned)) == pinned
    (line,) = difference(
        pinned, read(text, [f"data.train={tmp_path / 'x'}", f'data.teacher=["{tmp_path}/t", "hub:a/b"]'])
    )
    assert line.startswith("from: "), "/m is another model"


def test_blocks_have_their_own_data(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(TWO, "utf-8")
    run = read(path)
    assert [block.data.train for block in run.tasks] == [str(tmp_path / "a.csv"), str(tmp_path / "b.conll")]
    assert run.tasks[0].data.columns == {"text": "sentence", "label": "label"}
    assert (run.task, run.tasks[1].weight, run.ner.crf, run.out) == ("", 0.5, True, "runs/several")
    assert "data" not in run.sections
    assert {"ner", "classify"} <= set(run.sections)
    assert read(write(run)) == run
    assert difference(run, read(path, ["ner.crf=false"])) == ["ner.crf: true -> false"]


TWO = """\
from = "m"
[[tasks]]
name = "mood"
task = "classify"
[tasks.data]
train = "a.csv"
text = "sentence"

[[tasks]]
name = "names"
task = "ner"
weight = 0.5
data = {train = "b.conll"}

[ner]
crf = true
"""


# Faults


def fault(text: str, *overrides: str, tmp_path: Path) -> str:
    path = tmp_path / "run.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=r".") as caught:
        read(path, overrides)
    return str(caught.value).replace(f"{tmp_path}{os.sep}", "")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("[train]\n\nlrr = 1", "run.toml:7: unknown key train.lrr; did you mean 'lr'?"),
        (
            "[train]\nlearning_rate = 1",
            "run.toml:6: unknown key train.learning_rate; did you mean 'train.lr'?",
        ),
        ("[tran]\nlr = 1", "run.toml:5: unknown key tran; did you mean 'train'?"),
        ("[train]\nbeam = 1", "run.toml:6: unknown key train.beam; did you mean 'decode.beam'?"),
        ("[ner]\nxyz = 1", "run.toml:6: unknown key ner.xyz; known: crf, context, case, scheme"),
        ("epochs = 2", "run.toml:5: unknown key data.epochs; did you mean 'train.epochs'?"),
        ('"data x" = 2', "run.toml:5: unknown key data.data x; known: "),
        ('[train]\nlr = "fast"', 'run.toml:6: train.lr is "fast"; expected a number'),
        ("[train]\nlr = 0", "run.toml:6: train.lr is 0; expected at least 1e-12 and at most 1"),
        ("[train]\nlr = nan", "run.toml:6: train.lr is nan; expected a finite number"),
        ("[train]\nepochs = 0", "run.toml:6: train.epochs is 0; expected at least 1 and at most 10000"),
        ("[train]\nepochs = 2.0", "run.toml:6: train.epochs is 2.0; expected a whole number"),
        ("[train]\nepochs = true", "run.toml:6: train.epochs is true; expected a whole number"),
        ("[train]\nseed = -1", "run.toml:6: train.seed is -1; expected at least 0 and less than 4294967296"),
        ("[train]\nsmoothing = 1.0", "run.toml:6: train.smoothing is 1.0; expected at least 0 and less than 1"),
        (
            "[train]\nwarmup = 1.5",
            "run.toml:6: train.warmup is 1.5; expected a whole number or at least 0 and at most 1",
        ),
        ('[train]\nthreads = "all"', "run.toml:6: train.threads is \"all\"; expected 'auto' or a whole number"),
        (
            "[train]\nschedule = 'lin'",
            "run.toml:6: train.schedule is \"lin\"; expected 'linear', 'cosine' or 'constant'",
        ),
        (
            "[train]\nfreeze = [1]",
            "run.toml:6: train.freeze is [1]; expected a whole number or a text in quotes (item 0)",
        ),
        ("[train]\nepochs = 1\nsteps = 2", "run.toml:7: train.steps and epochs exclude each other; give one of them"),
        (
            '[train]\naverage = "checkpoints"\nkeep_checkpoints = 1',
            "run.toml:7: train.keep_checkpoints is 1; expected at least 2 for average",
        ),
        ("[window]\nsize = 16", "run.toml:5: window.overlap is 64; expected less than size = 16"),
        ("[model]\ndim = 8", "run.toml:5: model is for training from scratch, but `from` names a pretrained model"),
        ("[tokenizer]", "run.toml:5: tokenizer is for training from scratch"),
        ("[answer]\nno_answer = true", "run.toml:5: answer belongs to task = 'answer', not to 'ner'; remove it"),
        ("[decode]\nbeam = 5", "run.toml:5: decode is for tasks that generate text; remove it"),
        ("label = 'y'", "run.toml:5: data.label is not a column of task = 'ner'; columns are: tokens, tags"),
        ("encoding = 'utf9'", "run.toml:5: data.encoding is 'utf9', which is unknown; try utf-8"),
        ("limit = 2026-01-01", "run.toml:5: data.limit is 2026-01-01; expected a whole number"),
        ("[[tasks]]\nname = 'a'\ntask = 'ner'\ndata.train = 'x'", "run.toml:5: tasks and task exclude each other"),
        ("[[train]]", "run.toml:5: train is [{}]; expected a table"),
        ("[train\nlr = 1", "run.toml:5: invalid TOML: Expected ']' at the end of a table declaration"),
        ("train = 'y'", "run.toml:5: invalid TOML: Cannot overwrite a value"),
    ],
)
def test_a_fault_has_its_place(more: str, message: str, tmp_path: Path) -> None:
    found = fault(NER + more + "\n", tmp_path=tmp_path)
    assert found.startswith(message)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "run.toml: task is missing; known: ner, classify, match, answer"),
        ('\ntask = "nre"', "run.toml:2: task is 'nre'; did you mean 'ner'?"),
        ('task = "NER"', "run.toml:1: task is 'NER'; did you mean 'ner'?"),
        ("task = 3", "run.toml:1: task is 3; expected a text in quotes"),
        ('task = "ner"', "run.toml: data.train is missing; set it to the training file"),
        ('task = "ner"\n[data]\nvalid = "x"', "run.toml:2: data.train is missing; set it to the training file"),
        (
            'task = "ner"\ndata.valid = ["~root\\u0000"]',
            "run.toml:2: data.valid contains a NUL character, which no path can have; remove it",
        ),
        (
            'task = "ner"\nout = "a\\u0000"\ndata.train = "x"',
            "run.toml:2: out contains a NUL character, which no path can have; remove it",
        ),
        ('task = "ner"\ndata = 3', "run.toml:2: data is 3; expected a table"),
        ('task = "ner"\ndata.train = 3', "run.toml:2: data.train is 3; expected a text in quotes or a list"),
        ('task = "ner"\ndata.train = "x"\nfrom = {encoder = "x"}', "run.toml:3: from joins two models"),
        ('task = "ner"\ndata.train = "x"\nfrom = 3', "run.toml:3: from is 3; expected a text in quotes or a table"),
        (
            'task = "ner"\ndata.train = "x"\ndevice = "gpu"',
            "run.toml:3: device is \"gpu\"; expected 'auto', 'cpu', 'cuda' or 'mps'",
        ),
        (
            'task = "ner"\ndata.train = "x"\nmodel.heads = 3',
            "run.toml:3: model.heads is 3; expected a divisor of dim = 256",
        ),
        (
            'task = "ner"\ndata.train = "x"\n[model]\nkv_heads = 3',
            "run.toml:4: model.kv_heads is 3; expected a divisor of heads",
        ),
        (
            'task = "ner"\ndata.train = "x"\nwindow.size = 600',
            "run.toml:3: window.size is 600; expected at most model.max_length",
        ),
        (
            'task = "classify"\ndata.train = "x"\nclassify.class_weights = {a = 0}',
            "run.toml:3: classify.class_weights is {a = 0}; expected 'none' or 'balanced' or at least 1e-6 and",
        ),
        (
            'task = "translate"\ndata.train = "x"\n[decode]\nmax_length = 9\nmin_length = 10',
            "run.toml:5: decode.min_length is 10; expected at most max_length = 9",
        ),
        (
            'task = "generate"\ndata.train = "x"\n[decode]\nalignment = true',
            "run.toml:4: decode.alignment is for tasks with a source (translate, summarize); remove it",
        ),
        (TWO.replace('"names"', '"mood"'), "run.toml:2: tasks has two blocks named 'mood'; rename one"),
        (
            TWO.replace('"names"', '"a b"'),
            'run.toml:10: tasks[1].name is "a b"; expected a name of letters, digits, - and _',
        ),
        (TWO.replace("weight", "wait"), "run.toml:12: unknown key tasks[1].wait; did you mean 'weight'?"),
        (TWO.replace("text = ", "tags = "), "run.toml:7: tasks[0].data.tags is not a column of task = 'classify'"),
        (TWO.replace('task = "ner"', 'task = "x"'), "run.toml:11: tasks[1].task is 'x'; known: ner, classify"),
        (TWO.replace('task = "ner"', ""), "run.toml:9: tasks[1].task is missing"),
        (TWO + "[data]\ntrain = 'x'\n", "run.toml:17: data belongs to each of the [[tasks]]; move it to [tasks.data]"),
        (TWO + "[match]\n", "run.toml:17: match belongs to task = 'match', not to 'these tasks'; remove it"),
    ],
)
def test_faults_of_the_whole(text: str, message: str, tmp_path: Path) -> None:
    assert fault(text, tmp_path=tmp_path).startswith(message)


def test_every_fault_is_told(tmp_path: Path) -> None:
    found = fault(NER + "[train]\nlrr = 1\nclip = -1\n[ner]\ncrf = 1\n", tmp_path=tmp_path).split("\n")
    assert sorted(line.split(" ")[0] for line in found) == ["run.toml:6:", "run.toml:7:", "run.toml:9:"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("train.lrr=3", "override 'train.lrr=3': unknown key train.lrr; did you mean 'lr'?"),
        ("train.lr=fast", "override 'train.lr=fast': train.lr is \"fast\"; expected a number"),
        ("out=2024", "override 'out=2024': out is 2024; expected a text in quotes"),
        ("train=5", "override 'train=5': train is 5; expected a table"),
        ("train.lr", "override 'train.lr': write key=value, such as train.lr=3e-5"),
        ("=5", "override '=5': write key=value"),
        ("train..lr=5", "override 'train..lr=5': write key=value"),
        ("from.encoder=x", "override 'from.encoder=x': from is not a table"),
        ("answer.no_answer=true", "override 'answer.no_answer=true': answer belongs to task = 'answer'"),
    ],
)
def test_a_wrong_override_is_named(override: str, message: str, tmp_path: Path) -> None:
    assert fault(NER, override, tmp_path=tmp_path).startswith(message)


def test_faults_of_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such run file; create one: multihead init TASK"):
        read(tmp_path / "no.toml")
    (tmp_path / "run.toml").write_bytes('task = "ner"\n# 中文\n'.encode("gb18030"))
    with pytest.raises(ValueError, match=r"run\.toml: not UTF-8 at byte 15; save it as UTF-8"):
        read(tmp_path / "run.toml")


def test_flags_are_checked_alike() -> None:
    run = from_task("classify", data={"train": "x.csv", "label": 2}, from_="m", train={"lr": 3e-5})
    assert (run.data.columns, run.from_, run.train.lr) == ({"text": "text", "label": "2"}, "m", 3e-5)
    with pytest.raises(ValueError, match=r"^unknown key train\.lrr; did you mean 'lr'\?$"):
        from_task("classify", data={"train": "x.csv"}, train={"lrr": 1})
    with pytest.raises(ValueError, match=r"^task is 'clasify'; did you mean 'classify'\?$"):
        from_task("clasify", data={"train": "x.csv"})


def test_lines_are_found() -> None:
    text = '# lr = 1\n[train] # x\n"lr" = 3\n[[tasks]]\nname = "a"\n[[ tasks ]]\n name="b"\n[tasks.data]\ntrain="x"'
    assert line_of(text, ("train", "lr")) == 3
    assert line_of(text, ("train", "clip")) == 2
    assert line_of(text, ("tasks", 0, "name")) == 5
    assert line_of(text, ("tasks", 1, "name")) == 7
    assert line_of(text, ("tasks", 1, "data", "train")) == 9
    assert line_of(text, ("name",)) is None
    assert suggestion(("tasks", 0, "data", "trian")) == "did you mean 'train'?"


# Going on, and starting


def test_difference() -> None:
    old = read(NER + "[train]\nlr = 5e-4\n")
    new = read(NER, ["train.lr=3e-5", "train.epochs=5", "out=elsewhere", "window.size=128"])
    assert difference(old, new) == ["train.lr: 5e-4 -> 3e-5", "window.size: none -> 128"]
    assert difference(new, old) == ["window.size: 128 -> none", "train.epochs: 5 -> 3", "train.lr: 3e-5 -> 5e-4"]
    assert difference(old, read(NER, ["train.lr=5e-4", "train.steps=9"])) == [
        "train.epochs: 3 -> none",
        "train.steps: none -> 9",
    ]
    assert difference(read(NER, ["train.steps=8"]), read(NER, ["train.steps=9"])) == []
    assert difference(old, read(NER, ["train.lr=5e-4", "from=other"])) == ['from: "m" -> "other"']
    assert difference(old, read(NER, ["train.lr=5e-4", "data.train=/y"])) == [
        f'data.train: "{os.getcwd()}/x.conll" -> "/y"'
    ]


def test_every_changed_key_is_seen() -> None:
    """No key is taken for a section of the same name (data.train)."""
    old = read(NER.replace('from = "m"\n', ""))
    for part in old.sections:
        for name in SECTIONS[part].model_fields:
            section = getattr(old, part).model_copy(update={name: -1})
            (line,) = difference(old, old.model_copy(update={part: section}))
            assert line.startswith(f"{part}.{name}: ")
            assert line.endswith(" -> -1")


def test_the_rooms_agree() -> None:
    """run is a leaf and repeats names of other rooms; here they are compared."""
    from multihead.data.readers.tag_schemes import SCHEMES
    from multihead.models import ModelConfig
    from multihead.tasks import TASKS
    from multihead.text.training import KINDS

    def choices(table: type[Section], name: str) -> set[str]:
        return set(get_args(table.model_fields[name].annotation))

    assert {name: task.columns() for name, task in TASKS.items()} == {n: spec.columns for n, spec in SPECS.items()}
    assert choices(SECTIONS["tokenizer"], "kind") == set(KINDS)
    assert choices(SECTIONS["ner"], "scheme") == {"auto", *SCHEMES}
    assert choices(SECTIONS["model"], "positions") == set(get_args(get_type_hints(ModelConfig)["positions"]))
    assert set(SECTIONS["model"].model_fields) - {"decoder_layers"} <= set(get_type_hints(ModelConfig))
    assert [name for name in RunConfig.model_fields if name not in ("task", "from_", "out", "device")] == [*SECTIONS]


@pytest.mark.parametrize("task", SPECS)
@pytest.mark.parametrize("scratch", [False, True])
def test_template(task: str, scratch: bool) -> None:
    text = template(task, from_scratch=scratch)
    run = read(text)
    train = str(Path(run.data.train).name) if isinstance(run.data.train, str) else ""
    assert run == from_task(task, data={"train": train}, from_=None if scratch else "path/to/model")
    assert f'\ntrain = "{train}" ' in text, "a path as people write it, not this machine's"
    notes = [line for line in text.splitlines()[3:] if line and line[0] != "["]
    assert all(re.fullmatch(r"(# )?\w+ = .+ # \S.*", line) for line in notes)
    assert max(map(len, text.splitlines())) <= 120

    # Every key that the task has stands there, once, and reads when its # is removed.
    opened = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    opened = re.sub(r"^steps = .*\n" + (r"|^from = .*\n" if scratch else ""), "", opened, flags=re.MULTILINE)
    whole = read(opened)
    for part in run.sections:
        given = getattr(whole, part).model_fields_set
        columns = set(ROLES) - set(SPECS[task].columns) if part == "data" else set()
        columns |= set() if SPECS[task].body == "encoder_decoder" else set(ONLY_PAIRS.get(part, ()))
        columns |= set() if SPECS[task].soft_labels else set(DISTILLATION_KEYS.get(part, ()))
        assert set(SECTIONS[part].model_fields) - given - columns - {"steps"} == set(), part
    for part in run.sections:  # examples of what is unset
        unset = {name: value for name, value in getattr(run, part) if value is None or value == ""}
        whole = whole.model_copy(update={part: getattr(whole, part).model_copy(update=unset)})
    assert whole == run, "a key shown with # has its default, or is one of the unset ones"


def test_template_of_nothing() -> None:
    with pytest.raises(ValueError, match=r"task is 'nre'; did you mean 'ner'\?"):
        template("nre")
    assert 'from = "hub:a/b"' in template("ner", from_="hub:a/b")
