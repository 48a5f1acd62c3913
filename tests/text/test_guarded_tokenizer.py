"""Foreign tokenizers cannot take long or much memory: refused when loaded, or ended when they run."""

import importlib.util
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multihead.text.guarded_tokenizer import needs_guard
from multihead.text.tokenizer import Tokenizer


def write(folder: Path, **changes: Any) -> Path:
    inner = json.loads(Tokenizer.train(["a b c"], "char", 20).inner.to_str())
    (folder / "tokenizer.json").write_text(json.dumps({**inner, **changes}))
    return folder


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def replace(pattern: str, content: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


def test_a_slow_pattern_is_named(tmp_path: Path) -> None:
    """`a*a*c` took over a minute for 4,000 letters."""
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"tokenizer\.json: pre_tokenizer: the pattern a\*a\*c needs more than"):
        Tokenizer.load(write(tmp_path, pre_tokenizer=split("a*a*c")))
    assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    "changes",
    [
        {"pre_tokenizer": split("a+b")},
        {"normalizer": replace("", "x" * 200)},
        {"normalizer": replace("x*", "x" * 200)},
        {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}] * 40}},
    ],
)  # fmt: skip
def test_what_passes_loading_is_bounded(tmp_path: Path, changes: dict[str, Any]) -> None:
    start = time.monotonic()
    try:
        tokenizer = Tokenizer.load(write(tmp_path, **changes))
        assert needs_guard(tokenizer.inner)
        reason = f"{len(tokenizer.encode('aé' * 50_000))}"
    except ValueError as error:
        reason = str(error)
    assert reason
    assert "\n" not in reason
    assert time.monotonic() - start < 20


def test_a_guarded_tokenizer_gives_the_same(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(write(tmp_path, pre_tokenizer=split("[ab]+|c")))
    assert needs_guard(tokenizer.inner)
    found, wanted = tokenizer.encode("a b c ab"), tokenizer.inner.encode("a b c ab")
    assert (found.ids, found.offsets) == (wanted.ids, wanted.offsets)
    assert tokenizer.decode(found.ids) == tokenizer.inner.decode(wanted.ids)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "char"])
def test_a_long_word_is_learnt_and_read_soon(kind: str) -> None:
    draw = random.Random(0)
    text = "".join(chr(draw.randint(0x4E00, 0x5000)) for _ in range(100_000))
    start = time.monotonic()
    tokenizer = Tokenizer.train([text], kind, 4000)
    assert not needs_guard(tokenizer.inner)
    assert len(tokenizer.encode(text)) > 0
    assert time.monotonic() - start < 15


SPEC = importlib.util.spec_from_file_location("hostile_tokenizers", Path(__file__).parent / "hostile_tokenizers.py")
MODULE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(MODULE)
HOSTILE: dict[str, dict[str, Any]] = MODULE.HOSTILE
ATTACK = """
import resource, sys, time
from pathlib import Path
from multihead.text.tokenizer import Tokenizer
folder, size = Path(sys.argv[1]), int(sys.argv[2])
longest = 0.0
def attempt(work):
    global longest
    start = time.monotonic()
    try:
        return work()
    except ValueError as error:
        assert "\\n" not in str(error) and len(str(error)) < 600, error
        print("refused:", error)
    finally:
        longest = max(longest, time.monotonic() - start)
tokenizer = attempt(lambda: Tokenizer.load(folder))
for text in ("a" * size, "ab" * (size // 2) + "\\0c", "é" * size) if tokenizer else ():
    attempt(lambda: tokenizer.encode(text))
if tokenizer:
    attempt(lambda: tokenizer.decode([tokenizer.id("a") or 0] * size))
# Not ru_maxrss: a process that was spawned starts with the peak of the one that spawned it.
own = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print("most", longest, max(own, child))
"""


def attack(folder: Path, name: str, size: int) -> None:
    """Each step is an error of one line or done, within 10 s (and some for a busy machine) and 2 GB."""
    write(folder, **HOSTILE[name])
    command = [sys.executable, "-c", ATTACK, str(folder), str(size)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert child.returncode == 0, child.stderr[-500:]
    seconds, kibibytes = map(float, child.stdout.splitlines()[-1].split()[1:])
    assert seconds < 12
    assert kibibytes < 2 << 20


QUICK = ("split a*a*c|.", "split ((a{1000}){1000}){1000}", "bytes of bytes", "long template", "long piece")


@pytest.mark.parametrize("name", QUICK)
def test_hostile_tokenizers_are_bounded(tmp_path: Path, name: str) -> None:
    attack(tmp_path, name, 4_000)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_every_hostile_tokenizer_is_bounded(tmp_path: Path, name: str) -> None:
    assert len(HOSTILE) >= 60
    attack(tmp_path, name, 100_000)


def test_the_plain_library_is_not_bounded() -> None:
    """The control: what a foreign pattern does without limits."""
    plain = "from tokenizers import Regex, pre_tokenizers as p; p.Split(Regex('a*a*c'), 'isolated')"
    command = [sys.executable, "-c", plain + ".pre_tokenize_str('a' * 4000 + 'bc')"]
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(command, timeout=8, check=False)
