"""Browser for tests: Chromium, controlled through its debugging pipe, without a driver or a library."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
CODES = {"ArrowUp": 38, "End": 35, "Tab": 9}
READS, WRITES = 3, 4  # the descriptors that Chromium reads commands from and writes answers to


def missing() -> str:
    """Return the reason why the browser cannot be used; empty if Chromium is installed."""
    return "" if shutil.which("chromium") else "chromium not installed (Debian: chromium)"


class Browser:
    def __init__(self, profile: Path):
        (commands, self._commands), (self._answers, answers) = os.pipe(), os.pipe()
        # Copy to descriptors above 3 and 4, because the child uses 3 and 4.
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in (commands, answers)]
        os.close(commands)
        os.close(answers)
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        places = [*((os.POSIX_SPAWN_DUP2, null, each) for each in (1, 2))]
        places += [(os.POSIX_SPAWN_DUP2, end, place) for end, place in zip(ends, (READS, WRITES), strict=True)]
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = os.posix_spawnp("chromium", command, dict(os.environ), file_actions=places, setpgroup=0)
        for end in (*ends, null):
            os.close(end)
        self._number, self._read, self._session = 0, b"", ""
        self._events: list[dict[str, Any]] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        os.killpg(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)
        os.close(self._commands)
        os.close(self._answers)

    def resize(self, width: int, height: int) -> None:
        """Set the size of the page, which can be smaller than a window."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._ask("Emulation.setDeviceMetricsOverride", **size)

    def emulate(self, *, scheme: str = "light", media: str = "") -> None:
        """Set the colour scheme, "light" or "dark", and the medium, "print" or "" for the screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setEmulatedMedia", media=media, features=features)

    def open(self, url: str) -> None:
        """Load a page and wait for its load event."""
        for address in ("about:blank", url):  # from the same page, a URL with another #fragment would load nothing
            self._events.clear()
            self._ask("Page.navigate", url=address)
            while not any(event["method"] == "Page.loadEventFired" for event in self._events):
                self._events.append(self._next())

    def run(self, script: str) -> Any:
        """Run JavaScript code in the page. Returns the value of its `return` statement; a promise is awaited."""
        code = f"(async () => {{ {script} }})()"
        found = self._ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"]["exception"].get("description"))
        return found["result"].get("value")

    def press(self, *keys: str) -> None:
        for key in keys:
            code = {"key": key, "windowsVirtualKeyCode": CODES.get(key, 0)} | ({} if key in CODES else {"text": key})
            self._ask("Input.dispatchKeyEvent", type="keyDown", **code)
            self._ask("Input.dispatchKeyEvent", type="keyUp", key=key)
        time.sleep(0.3)

    def complaints(self) -> list[str]:
        """Return console messages and exceptions since the page was opened."""
        self.run("return 0")  # events before the answer have been read
        found = []
        for event in self._events:
            of, what = event["method"], event["params"]
            if of == "Runtime.exceptionThrown":
                found.append(what["exceptionDetails"].get("exception", {}).get("description", "thrown"))
            elif of == "Log.entryAdded":
                found.append(what["entry"]["text"])
            elif of == "Runtime.consoleAPICalled":
                found.append(str([each.get("value") for each in what["args"]]))
        return found

    def requests(self) -> list[str]:
        """Return the URLs that the page has requested since it was opened."""
        self.run("return 0")
        sent = [each["params"] for each in self._events if each["method"] == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if "id" not in answer:
                self._events.append(answer)
            elif answer["id"] == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            piece = os.read(self._answers, 1 << 20)
            if not piece:
                raise RuntimeError("Chromium ended")
            self._read += piece
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found
