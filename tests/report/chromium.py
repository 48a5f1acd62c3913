"""A browser driven through its own pipe (Chrome DevTools Protocol, `--remote-debugging-pipe`): JSON messages that
end with a NUL, over file descriptors 3 and 4. No package needed."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Self

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--disable-dev-shm-usage",
)  # fmt: skip


def found() -> str | None:
    """Where a Chromium is; $CHROMIUM first."""
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)


def wired(command: list[str]) -> tuple[subprocess.Popen[bytes], int, int]:
    """A process that reads descriptor 3 and writes descriptor 4, and our ends of the two pipes."""
    their_in, our_out = os.pipe()
    our_in, their_out = os.pipe()
    high_in, high_out = (fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 50) for end in (their_in, their_out))

    def place() -> None:  # in the child: the copies are far from 3 and 4, so neither is overwritten
        os.dup2(high_in, 3)
        os.dup2(high_out, 4)

    process = subprocess.Popen(command, preexec_fn=place, pass_fds=(3, 4), stderr=subprocess.DEVNULL)
    for end in (their_in, their_out, high_in, high_out):
        os.close(end)
    return process, our_out, our_in


class Browser:
    """One page. `complaints`: errors and warnings of the console, exceptions, violations of the policy."""

    def __init__(self, program: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        command = [program, *FLAGS, "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "about:blank"]
        self.process, self.out, self.incoming = wired(command)
        self.rest, self.sent, self.session = b"", 0, ""
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.loaded = False
        try:
            self.begin(width, height, dark)
        except BaseException:
            self.process.terminate()
            raise

    def begin(self, width: int, height: int, dark: bool) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.width = width
        self.resize(height)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.wait(20)
        os.close(self.out)
        os.close(self.incoming)
        self.folder.cleanup()

    def resize(self, height: int) -> None:
        phone = self.width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride", width=self.width, height=height, deviceScaleFactor=1, mobile=phone
        )

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.sent += 1
        message: dict[str, Any] = {"id": self.sent, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self.hear(answer)

    def receive(self, seconds: float = 60) -> dict[str, Any]:
        limit = time.monotonic() + seconds
        while b"\0" not in self.rest:
            if not select.select([self.incoming], [], [], max(0, limit - time.monotonic()))[0]:
                raise TimeoutError("the browser does not answer")
            more = os.read(self.incoming, 1 << 20)
            if not more:
                raise RuntimeError("the browser has gone")
            self.rest += more
        message, _, self.rest = self.rest.partition(b"\0")
        return json.loads(message)

    def hear(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(str([value.get("value", value.get("description")) for value in params["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Page.loadEventFired":
            self.loaded = True

    def open(self, url: str) -> None:
        self.loaded = False
        self.call("Page.navigate", url=url)
        while not self.loaded:
            self.hear(self.receive())
        self.settle()

    def settle(self) -> None:
        """Two frames: observers have run and the page is drawn."""
        self.ask("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def point(self, x: float, y: float, kind: str = "mouseMoved") -> None:
        press = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **press)

    def click(self, selector: str) -> None:
        box = self.box(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.point(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, kind)
        self.settle()

    def box(self, selector: str) -> dict[str, float]:
        """Where an element is in the window, after scrolling to it."""
        node = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{node}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        self.settle()  # what listens to scrolling has heard of it
        return self.ask(f"{node}.getBoundingClientRect().toJSON()")

    def picture(self) -> bytes:
        """A PNG of the whole page."""
        self.resize(int(self.ask("document.documentElement.scrollHeight")))
        self.settle()
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"])
