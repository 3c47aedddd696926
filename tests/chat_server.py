"""A server of OpenAI's chat completions with scripted answers, which records its requests."""

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Refusal = tuple[int, dict[str, str]]


class ChatServer(ThreadingHTTPServer):
    """HTTP server of chat completions, which serves at `url` inside a `with` block.

    Args:
        reply: function from a request to the content of the answer. None: no content.
        num_gathered: number of concurrent requests for which the first answer waits, at most `patience_s` seconds.
        refuses: function from the number of a request (from 0) to status and headers of an error. None: no error.
        changes: changed fields of every answer.
        body: bytes of every answer, which replace its fields.
        delay_s: time in seconds between two bytes of an answer.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self,
        reply: Callable[[dict[str, Any]], str | None] = lambda body: "the fox",
        *,
        num_gathered: int = 1,
        patience_s: float = 5.0,
        refuses: Callable[[int], Refusal | None] = lambda number: None,
        changes: dict[str, Any] | None = None,
        body: bytes | None = None,
        delay_s: float = 0.0,
    ):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply, self.refuses, self.changes = reply, refuses, changes or {}
        self.body, self.delay_s = body, delay_s
        self.num_gathered, self.patience_s = num_gathered, patience_s
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.under_way = self.most_under_way = 0
        self.changed = threading.Condition()
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def let_go(self) -> None:
        """Send all waiting answers."""
        with self.changed:
            self.num_gathered = 0
            self.changed.notify_all()

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        super().__exit__(*exception)


class _Handler(BaseHTTPRequestHandler):
    server: ChatServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.changed:
            number = len(server.requests)
            server.requests.append(body)
            server.keys.append(self.headers["Authorization"])
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
            server.changed.notify_all()
            server.changed.wait_for(lambda: server.most_under_way >= server.num_gathered, server.patience_s)
        refusal = server.refuses(number)
        if self.path != "/v1/chat/completions":
            refusal = (404, {})
        status, headers = refusal or (200, {})
        content = server.reply(body) if status == 200 else None
        answer: dict[str, Any] = {"error": {"message": f"status {status}"}}
        if status == 200:
            choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
            answer = {"id": f"chat-{number}", "object": "chat.completion", "created": 0, "model": body["model"]}
            answer |= {"usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}}
            answer |= {"choices": [choice], **server.changes}
        with server.changed:
            server.under_way -= 1
        is_stream = status == 200 and body.get("stream", False)
        payload = _stream(answer) if is_stream else json.dumps(answer).encode()
        headers = {**headers, "Content-Type": "text/event-stream" if is_stream else "application/json"}
        try:
            self.send(status, headers, payload if server.body is None else server.body)
        except ConnectionError:  # the client has closed the connection
            self.close_connection = True

    def send(self, status: int, headers: dict[str, str], payload: bytes) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": len(payload)}.items():
            self.send_header(name, str(value))
        self.end_headers()
        for number in range(len(payload) if self.server.delay_s else 0):
            self.wfile.write(payload[number : number + 1])
            time.sleep(self.server.delay_s)
        self.wfile.write(b"" if self.server.delay_s else payload)

    def log_message(self, *args: Any) -> None:
        pass


def _stream(answer: dict[str, Any]) -> bytes:
    """Encode an answer as server-sent events: content, finish reason, usage."""
    common = {name: answer[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    (choice,) = answer["choices"]
    chunks: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": choice["message"], "finish_reason": None}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {"choices": [], "usage": answer["usage"]},
    ]
    events = [f"data: {json.dumps(common | chunk)}\n\n" for chunk in chunks]
    return "".join([*events, "data: [DONE]\n\n"]).encode()
