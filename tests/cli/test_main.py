"""Exit codes, error lines and speed of the command, each in a real process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multihead import __version__
from multihead.cli.main import VERBS

# A verb of the test's own, put in the place of `doctor`: what main does with endings is the same for all.
FAKE = """
import sys, types
from multihead.cli import app as cli, main
app = cli.verb()
@app.command()
def fake() -> None:
    {body}
sys.modules["fake"] = types.ModuleType("fake")
sys.modules["fake"].app = app
main.VERBS["doctor"] = ("fake", "")
main.main()
"""


def multihead(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multihead", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def fake(body: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", FAKE.format(body=body), "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_help(flag: str) -> None:
    done = multihead(flag)
    assert done.returncode == 0
    assert all(f"  {verb} " in done.stdout for verb in VERBS)


def test_help_is_fast() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        assert multihead("--help").returncode == 0
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.3


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_imports_nothing_heavy(verb: str) -> None:
    program = (
        "import sys\nfrom multihead.cli.main import main\n"
        f"try: main([{verb!r}, '--help'])\n"
        "finally: print({'torch', 'numpy', 'matplotlib', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: multihead {verb}")
    assert f"Example:\n    multihead {verb}" in done.stdout
    assert done.stdout.endswith("set()\n")


def test_version() -> None:
    assert multihead("--version").stdout == f"multihead {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], ""),
        (["docter"], "unknown command 'docter'; did you mean 'doctor'?"),
        (["xyz"], "unknown command 'xyz'; commands: demo, init, check"),
        (["--wrong"], "unknown command '--wrong'"),
        (["doctor", "--wrong"], "No such option"),
        (["demo", "--steps", "0"], "--steps"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], message: str) -> None:
    done = multihead(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_good_is_0_and_a_failed_run_is_1() -> None:
    assert fake("pass").returncode == 0
    assert fake("import typer; raise typer.Exit(1)").returncode == 1


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (
            "raise ValueError('heads=3 does not divide\\ndim=8; use 4')",
            "heads=3 does not divide\n  dim=8; use 4",
        ),
        ("open('/no/such/file')", "[Errno 2] No such file or directory: '/no/such/file'"),
        (
            "raise ModuleNotFoundError(name='x_transformers.attend')",
            "x_transformers.attend is not installed: pip install 'multihead[bench]'",
        ),
    ],
)
def test_an_error_is_told_in_its_lines_and_1(body: str, line: str) -> None:
    body = body.replace("\n", "\\n")
    done = fake(body)
    assert (done.returncode, done.stderr) == (1, f"multihead: {line}\n")
    for debugged in (fake(body, "--debug"), fake(body, MULTIHEAD_DEBUG="1")):
        assert debugged.returncode == 1
        assert "Traceback" in debugged.stderr
    assert "Traceback" not in fake(body, MULTIHEAD_DEBUG="0").stderr


def test_a_fault_of_our_own_keeps_its_traceback() -> None:
    assert "Traceback" in fake("assert False").stderr
    assert "Traceback" in fake("import no_such_module").stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_stopped(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """The verb's `finally` runs, nothing is printed, and the code says which signal it was."""
    mark = tmp_path / "cleaned"
    body = f"""
    import pathlib, time
    try:
        print('ready', flush=True)
        time.sleep(60)
    finally:
        pathlib.Path({str(mark)!r}).touch()
"""
    command = [sys.executable, "-c", FAKE.format(body=body.strip()), "doctor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(number)
        _, errors = child.communicate(timeout=20)
    assert child.returncode == code
    assert mark.exists()
    assert "Traceback" not in errors
