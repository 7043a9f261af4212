"""A real browser, headless, at the end of a pipe: Chromium's own protocol over two descriptors, and nothing between.

``Browser`` opens a page, asks it things, clicks and types as a hand would, and remembers whatever the page complained
of. It ends, and what it left on disk is gone, when its ``with`` does.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flashfs.poll import readable

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
TIMEOUT_S = 60.0
# The protocol's descriptors are 3 and 4 by definition; a child of subprocess has other numbers.
AS_3_AND_4 = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)


def installed() -> str | None:
    """The path of a browser that this machine has, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of one browser. Methods wait until what they ask is done; TimeoutError if it is not for a minute."""

    def __init__(self) -> None:
        program = installed()
        assert program is not None
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._home = tempfile.mkdtemp(prefix="flashfs-browser-")
        ours, theirs = os.pipe(), os.pipe()  # what it reads, what it says
        command = [
            sys.executable, "-c", AS_3_AND_4, str(ours[0]), str(theirs[1]), program, "--headless", "--no-sandbox",
            "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
            "--disable-component-update", "--disable-background-networking", f"--user-data-dir={self._home}",
        ]  # fmt: skip
        environment = {**os.environ, "HOME": self._home, "XDG_CONFIG_HOME": self._home, "XDG_CACHE_HOME": self._home}
        self._process = subprocess.Popen(
            command, pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(ours[0])
        os.close(theirs[1])
        self._writer, self._reader, self._held = ours[1], theirs[0], b""
        self._number = 0
        self._session: str | None = None
        self._loaded = 0
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *problem: object) -> None:
        os.close(self._writer)
        os.close(self._reader)
        try:
            self._process.wait(5)  # it ends when the pipe does
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    # --- the protocol

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One call of the protocol, and its result; what the browser says meanwhile is noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._writer, json.dumps(message).encode() + b"\0")
        while True:
            said = self._next()
            if said.get("id") == self._number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']}")
                result: dict[str, Any] = said["result"]
                return result

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + TIMEOUT_S
        while b"\0" not in self._held:
            ready = readable(self._reader, timeout_s=max(0.0, end - time.monotonic()))
            got = os.read(self._reader, 1 << 20) if ready else b""
            if not got:
                raise TimeoutError(f"the browser says nothing (its exit code: {self._process.poll()})")
            self._held += got
        raw, _, self._held = self._held.partition(b"\0")
        said: dict[str, Any] = json.loads(raw)
        self._note(said.get("method", ""), said.get("params", {}))
        return said

    def _note(self, event: str, about: dict[str, Any]) -> None:
        if event == "Page.loadEventFired":
            self._loaded += 1
        elif event == "Runtime.exceptionThrown":
            details = about["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description") or details["text"])
        elif event == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(one.get("value", one)) for one in about["args"]))
        elif event == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            self.complaints.append(about["entry"]["text"])
        elif event == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif event == "Page.javascriptDialogOpening":
            self.complaints.append(f"a dialogue: {about['message']}")

    # --- what a person does

    def screen(self, width: int, height: int, *, dark: bool = False, phone: bool = False, scale: float = 1) -> None:
        """From the next page on, and for the present one too."""
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        self.ask("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, path: Path, fragment: str = "") -> None:
        """Open a file and wait until it is drawn."""
        before = self._loaded
        self.ask("Page.navigate", url="about:blank")
        self._until(before + 1)
        self.ask("Page.navigate", url=path.resolve().as_uri() + fragment)
        self._until(before + 2)
        self.see("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def _until(self, loaded: int) -> None:
        while self._loaded < loaded:
            self._next()

    def see(self, expression: str) -> Any:
        """The value of an expression in the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"]["description"])
        return found["result"].get("value")

    def click(self, x: float, y: float) -> None:
        """Move to a point of the window and click there."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str) -> None:
        """A key by its name, as ArrowRight."""
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """A PNG of the window, or of the whole page."""
        made = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))
