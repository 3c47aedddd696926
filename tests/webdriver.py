"""A browser to look at pages with: Chromium through its driver's HTTP interface, which needs no library."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
)
KEYS = {"Down": "\ue015", "Up": "\ue013", "End": "\ue010", "Home": "\ue011", "PageDown": "\ue00f", "Tab": "\ue004"}


def missing() -> str:
    """Why there is no browser; empty where there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed (Debian: chromium, chromium-driver)" if absent else ""


class Browser:
    """One window; a context manager."""

    def __init__(self, profile: Path, port: int):
        command = ["chromedriver", f"--port={port}", "--silent"]
        self._driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._base = f"http://127.0.0.1:{port}"
        options = {"args": [*FLAGS, f"--user-data-dir={profile}"]}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        for _ in range(100):
            try:
                self._session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]
                break
            except urllib.error.URLError:
                time.sleep(0.2)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *exception: object) -> None:
        self._do("DELETE", "")
        self._driver.terminate()
        self._driver.wait()

    def resize(self, width: int, height: int) -> None:
        """The page's own size, below what a window of a browser can have, too."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        command = {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics}
        self._do("POST", "/goog/cdp/execute", command)

    def open(self, url: str) -> None:
        self._do("POST", "/url", {"url": url})

    def run(self, script: str) -> Any:
        """What a script returns."""
        return self._do("POST", "/execute/sync", {"script": script, "args": []})

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        actions = []
        for key in keys:
            value = KEYS.get(key, key)
            actions += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._do("POST", "/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})
        time.sleep(0.3)

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self._do("GET", "/screenshot")))

    def complaints(self) -> list[str]:
        """What the console has said so far."""
        return [entry["message"] for entry in self._do("POST", "/se/log", {"type": "browser"})]

    def _do(self, method: str, path: str, body: Any = None) -> Any:
        return self._ask(method, f"/session/{self._session}{path}", body)

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._base + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["value"]
