"""A server with the part of the Hugging Face hub's protocol that `collm push` and `collm pull` use."""

import base64
import hashlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

SHA = "a" * 40  # commit of every repository


class HubServer(ThreadingHTTPServer):
    """Hub that serves at `url` inside a `with` block. Each repository is a folder.

    Args:
        root: folder of the repositories; those of datasets are in its subfolder `datasets`.
        before: function of the method and the path, called before each answer. It may wait, or return a status and
            a body that are sent instead of the answer.
    """

    daemon_threads = True

    def __init__(self, root: Path, before: Callable[[str, str], tuple[int, bytes] | None] = lambda method, path: None):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.root, self.before = root, before
        self.private: dict[str, bool] = {}
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        super().__exit__(*exception)

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # the client was killed

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes | dict[str, Any] | list[Any] | Path]:
        parts = path.strip("/").split("/")
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            asked = json.loads(body)
            kind = "datasets/" if asked.get("type") == "dataset" else ""
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.private.setdefault(kind + name, bool(asked.get("private")))
            (self.root / kind / name).mkdir(parents=True, exist_ok=True)
            return 200, {"url": f"{self.url}/{kind}{name}", "id": name}
        if parts[0] == "api":
            kind, name, what = "datasets/" * (parts[1] == "datasets"), "/".join(parts[2:4]), parts[4:5]
            folder = self.root / kind / name
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            if not folder.is_dir():
                return 404, b""
            if what == ["preupload"]:
                asked = json.loads(body)["files"]
                return 200, {"files": [{**each, "uploadMode": "regular", "shouldIgnore": False} for each in asked]}
            if what == ["commit"]:
                for line in map(json.loads, body.splitlines()):
                    if line["key"] == "file":
                        file = folder / line["value"]["path"]
                        file.parent.mkdir(parents=True, exist_ok=True)
                        file.write_bytes(base64.b64decode(line["value"]["content"]))
                return 200, {"success": True, "commitOid": SHA, "commitUrl": f"{self.url}/{name}/commit/{SHA}"}
            if what == ["tree"]:
                return 200, [{"type": "file", "size": each.stat().st_size, **_place(each, folder)} for each in files]
            siblings = [{"rfilename": str(each.relative_to(folder))} for each in files]
            private = self.private.get(kind + name, False)
            return 200, {"id": name, "sha": SHA, "private": private, "siblings": siblings, "tags": [], "downloads": 0}
        file = self.root / "/".join(parts).replace(f"/resolve/{SHA}/", "/").replace("/resolve/main/", "/")
        return (200, file) if file.is_file() else (404, b"")


def _place(file: Path, folder: Path) -> dict[str, str]:
    return {"path": str(file.relative_to(folder)), "oid": _etag(file)}


def _etag(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: HubServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, content = self.server.before(self.command, path) or self.server.answer(self.command, path, body)
        headers = {"X-Repo-Commit": SHA, "Content-Type": "application/json"}
        if isinstance(content, Path):
            headers["ETag"], content = f'"{_etag(content)}"', content.read_bytes()
        elif not isinstance(content, bytes):
            content = json.dumps(content).encode()
        if status == 404:
            headers["X-Error-Code"] = "RepoNotFound" if path.startswith("/api") else "EntryNotFound"
        try:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)
        except ConnectionError:  # the client was killed
            self.close_connection = True

    do_HEAD = do_POST = do_GET

    def log_message(self, *args: Any) -> None:
        pass
