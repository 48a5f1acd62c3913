import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from multihead.cli.init import app
from multihead.config import read
from multihead.tasks.spec import SPECS


@pytest.mark.parametrize("task", SPECS)
def test_prints_a_file_that_reads(task: str) -> None:
    done = CliRunner().invoke(app, [task, "--from", "hub:a/b"])
    assert done.exit_code == 0
    run = read(done.stdout)
    assert (run.task, run.from_) == (task, "hub:a/b")
    assert read(CliRunner().invoke(app, [task]).stdout).from_ == "path/to/model"
    assert read(CliRunner().invoke(app, [task, "--scratch"]).stdout).from_scratch
    assert task in CliRunner().invoke(app, ["--help"]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nre"], "task is 'nre'; did you mean 'ner'?"),
        (["xyz"], "known: ner, classify, match, answer"),
        (["ner", "--scratch", "--from", "m"], "exclude each other"),
        ([], "Missing argument"),
    ],
)
def test_wrong_usage_is_2(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert done.stdout == "", "nothing that would land in run.toml"


def test_help_names_every_task() -> None:
    """They are written out in the help, which shall not load the specs."""
    done = subprocess.run([sys.executable, "-m", "multihead", "init", "--help"], capture_output=True, text=True)
    *first, last = SPECS
    assert f"{', '.join(first)} or {last}." in " ".join(done.stdout.split())


def test_help_is_fast_and_the_file_needs_no_torch() -> None:
    program = (
        "import sys\nfrom multihead.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: print({'torch', 'numpy', 'pydantic'} & set(sys.modules), file=sys.stderr)"
    )

    def loaded(*arguments: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", program, "init", *arguments], capture_output=True, text=True, check=True
        ).stderr.strip()

    def seconds() -> float:  # of the processor: a busy machine does not fail this
        before = os.times()
        assert loaded("--help") == "set()"
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    assert min(seconds() for _ in range(3)) < 0.3
    assert loaded("ner") == "{'pydantic'}"
