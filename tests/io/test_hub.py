"""Where models are: paths as they are, and the hub only when it is asked for, told at once when it is not there."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from multihead.io.hub import resolve

hub = pytest.importorskip("huggingface_hub", reason="pip install multihead[hub]")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A local cache in the hub's own layout, with one model in it."""
    root = tmp_path / "cache"
    snapshot = root / "models--owner--kept" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"x")
    refs = root / "models--owner--kept" / "refs"
    refs.mkdir()
    (refs / "main").write_text(COMMIT)
    (root / "models--owner--kept" / "blobs").mkdir()
    real_download, real_scan = hub.snapshot_download, hub.scan_cache_dir
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **o: real_download(name, cache_dir=root, **o))
    monkeypatch.setattr(hub, "scan_cache_dir", lambda: real_scan(root))
    return snapshot


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """No network: every attempt to leave is refused, and written down."""
    calls: list[object] = []

    def refuse(*address: object, **options: object) -> None:
        calls.append(address)
        raise OSError("no network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return calls


def test_paths_are_taken_as_they_are(tmp_path: Path, nobody: list[object]) -> None:
    (tmp_path / "m.gguf").touch()
    assert resolve(tmp_path) == tmp_path
    assert resolve(str(tmp_path)) == tmp_path
    assert resolve(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"
    assert nobody == []


@pytest.mark.parametrize(
    "where", ["owner/name", "bert-base-uncased", "https://huggingface.co/owner/name", "/absent/model"]
)
def test_nothing_else_goes_online(where: str, nobody: list[object]) -> None:
    with pytest.raises(ValueError, match="no such file or directory; check the path") as caught:
        resolve(where)
    assert nobody == []
    assert ("hub:owner/name" in str(caught.value)) == (where == "owner/name")


@pytest.mark.parametrize(
    "where",
    ["hub:", "hub:name", "hub:a/b/c", "hub:../x", "hub:a/..", "hub:a/b@", "hub:a/b@../x", "hub:a b/c", "hub:/etc/x"],
)
def test_addresses_are_checked(where: str, nobody: list[object]) -> None:
    with pytest.raises(ValueError, match="is not a hub address; write hub:owner/name"):
        resolve(where)
    assert nobody == []


def test_offline_is_told_at_once(cache: Path, nobody: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    start = time.monotonic()
    with pytest.raises(
        ValueError, match=r"HF_HUB_OFFLINE is set: .* local cache, which holds owner/kept; go online"
    ) as caught:
        resolve("hub:owner/absent")
    assert time.monotonic() - start < 3
    assert "\n" not in str(caught.value)
    assert nobody == []
    assert resolve("hub:owner/kept") == cache
    assert resolve(f"hub:owner/kept@{COMMIT}") == cache
    with pytest.raises(ValueError, match=r"hub:owner/kept@v2: HF_HUB_OFFLINE is set"):
        resolve("hub:owner/kept@v2")


def test_no_network_is_told_at_once(cache: Path, nobody: list[object]) -> None:
    start = time.monotonic()
    with pytest.raises(ValueError, match=r"the hub does not answer \(\w+\), and .* holds owner/kept"):
        resolve("hub:owner/absent")
    assert nobody, "the network was really asked for"
    assert resolve("hub:owner/kept") == cache
    assert time.monotonic() - start < 10


def test_an_empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a child with the real library and an empty home, so that nothing is patched."""
    code = "from multihead.io.hub import resolve\ntry: resolve('hub:owner/name')\nexcept ValueError as e: print(e)"
    environment = {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PATH": "", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hub:owner/name: HF_HUB_OFFLINE is set")
    assert "which holds nothing; go online once" in done.stdout
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("weights", ["model.safetensors", "pytorch_model.bin"])
def test_only_harmless_files_are_asked_for(weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}
    siblings = [
        SimpleNamespace(rfilename=name) for name in ("config.json", weights, "modeling_x.py", "training_args.bin")
    ]
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub.HfApi, "model_info", lambda self, name, **options: SimpleNamespace(siblings=siblings))
    monkeypatch.setattr(hub, "snapshot_download", lambda name, **options: asked.update(options) or str(tmp_path))
    assert resolve("hub:owner/name@v1.0") == tmp_path
    assert asked["revision"] == "v1.0"
    kept = list(
        hub.utils.filter_repo_objects([file.rfilename for file in siblings], allow_patterns=asked["allow_patterns"])
    )
    assert kept == ["config.json", weights]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("RepositoryNotFoundError", "no such public model"),
        ("RevisionNotFoundError", "revision 'x' does not exist"),
        ("GatedRepoError", "agree to terms"),
    ],
)
def test_answers_of_the_hub(error: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = getattr(hub.errors, error)

    def answer(*_: object, **__: object) -> None:
        raise kind.__new__(kind)

    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(hub.HfApi, "model_info", answer)
    with pytest.raises(ValueError, match=words):
        resolve("hub:owner/name@x")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"pip install 'multihead\[hub\]'"):
        resolve("hub:owner/name")
