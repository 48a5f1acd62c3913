"""Child processes with limits on memory and CPU time, for work that depends on untrusted files.

Python cannot interrupt a C or Rust function in its own process; the kernel can end a child. The child stays alive for
the next request, so that a request costs a pipe and no start.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

MEMORY = 1 << 30  # bytes of address space; a renderer or a large tokenizer needs a tenth
PATIENCE = 3  # times the computing time may pass by the clock, on a machine that others use too
LONGEST_REASON = 300  # characters of an error that a child reports


class LimitError(ValueError):
    """The child was ended; the message is a predicate: "needs more than 3 s of computing"."""


class LimitedWorker:
    """`python -m module`, which calls `serve`; started at the first request, and again after it was ended."""

    def __init__(self, module: str) -> None:
        self.module = module
        self._forget()
        _WORKERS.add(self)

    def _forget(self) -> None:
        """Reset lock and child; also in a forked process, which must not write into the parent's pipes."""
        self._lock, self._child = threading.Lock(), None  # type: tuple[threading.Lock, subprocess.Popen[bytes] | None]

    def ask(self, request: Any, seconds: float) -> Any:
        """Return the answer to a request, both JSON. Raises LimitError, or ValueError where the child reports an
        error.
        """
        line = json.dumps([seconds, request]).encode() + b"\n"
        with self._lock:
            try:
                answer = self._exchange(line)
            except BaseException:  # Ctrl-C between question and answer: the next question must not get this answer
                self._end()
                raise
            if not answer.endswith(b"\n"):
                raise LimitError(_describe_end(self._end(), seconds))
            outcome, value = json.loads(answer)
            if outcome == "memory":
                self._end()
                raise LimitError(_describe_end(-signal.SIGABRT, seconds))
        if outcome == "error":
            raise ValueError(value)
        return value

    def _exchange(self, line: bytes) -> bytes:
        child = self._child = self._child or self._start()
        source, sink = _pipes(child)
        with suppress(BrokenPipeError):  # an ended child is seen at its empty answer
            sink.write(line)
            sink.flush()
        return source.readline()

    def _start(self) -> subprocess.Popen[bytes]:
        settings = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MALLOC_ARENA_MAX": "2"}
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **settings, "TOKENIZERS_PARALLELISM": "false"},
            start_new_session=True,  # Ctrl-C is the parent's to answer
        )
        weakref.finalize(self, _kill, child, os.getpid())
        if _pipes(child)[0].readline() != b"ready\n":
            _kill(child, os.getpid())
            raise ValueError(f"{sys.executable} -m {self.module} does not start; check the installation")
        return child

    def _end(self) -> int:
        """End the child and return its exit code, negative for a signal."""
        child, self._child = self._child, None
        if child is None:
            return 0
        with suppress(subprocess.TimeoutExpired):
            return child.wait(0.5)  # it may be ending at a limit; its signal shows which
        child.kill()
        return child.wait()


_WORKERS: weakref.WeakSet[LimitedWorker] = weakref.WeakSet()


def _forget_all() -> None:
    for worker in _WORKERS:
        worker._forget()


os.register_at_fork(after_in_child=_forget_all)


def _pipes(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    if child.stdout is None or child.stdin is None:
        raise RuntimeError("a worker without pipes")
    return child.stdout, child.stdin


def _kill(child: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner and child.poll() is None:
        child.kill()
        child.wait()


def _describe_end(code: int, seconds: float) -> str:
    if code in (-signal.SIGPROF, -signal.SIGALRM):
        return f"needs more than {seconds:.1f} s of computing"
    if code in (-signal.SIGABRT, 1):  # Rust aborts when it gets no memory
        return f"needs more than {MEMORY >> 20:,} MiB of memory"
    return f"ends the process that runs it (exit code {code})"


def serve(answer: Callable[[Any], Any]) -> None:
    """Run the child's loop: answer requests from stdin until it is closed, each within its limits."""
    for kind, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):  # macOS has no limit on address space; the one on time holds there too
            resource.setrlimit(kind, (most, most))
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.buffer.write(b"ready\n")
    sys.stdout.buffer.flush()
    for line in sys.stdin.buffer:
        seconds = float(line[1:40].split(b",")[0])
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, PATIENCE * seconds)
        reply = _reply(answer, line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(reply + b"\n")
        sys.stdout.buffer.flush()


def _reply(answer: Callable[[Any], Any], line: bytes) -> bytes:
    try:
        return json.dumps(["done", answer(json.loads(line)[1])]).encode()
    except MemoryError:
        return b'["memory", ""]'
    except BaseException as error:  # panics of `tokenizers` are no Exception
        reason = " ".join(str(error)[:LONGEST_REASON].split()) or type(error).__name__
        return json.dumps(["error", reason]).encode()
