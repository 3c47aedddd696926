"""Malicious run folders: mutations of their files, and a guard that records forbidden effects of reading them."""

import contextlib
import gc
import hashlib
import io
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PLACE = "\ue123"  # placeholder in JSON for text that `json.dumps` does not write
TEXTS = {
    "deep": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "deep list": "[" * 200_000 + "]" * 200_000,
    "less deep": "[" * 90 + "]" * 90,
    "long number": "9" * 5_000,
    "great number": "1" + "0" * 300,
    "infinite": "1e999",
    "not a number": "NaN",
    "half a character": '"\\ud800"',
    "cut": '"',
}
Guarded = Callable[[], object]


def values(rng: random.Random, outside: Path) -> Any:
    """Return a random value that no run writes, or a path outside of the run folder."""
    marked = [f"{PLACE}{name}{PLACE}" for name in TEXTS]
    plain = [None, True, False, -1, 0, 1, 3, 0.5, -1e-300, 1e308, 2**31, 2**63, "", "x", "x" * 5_000, "\x00", "\u2028"]
    places = ["../victim/secret.jsonl", str(outside / "secret.jsonl"), str(outside), "~", "/", ".", "a/{split}.jsonl"]
    code = "hostile_package.env hostile_package:World gymnasium/hostile_package:X-v0 __import__('os') none".split()
    servers = ["http://127.0.0.1:9/v1", "openai:m@http://127.0.0.1:9/v1", "ray", "ray://127.0.0.1:9", "owner/kernel:x"]
    nested = [[], {}, [[]], [{}], {"$record": "Message", "fields": {}}, {"$tensor": "x"}, {"": ""}, [1, 2, 3]]
    return rng.choice([rng.choice(group) for group in (marked, plain, places, code, servers, nested)])


def changed_json(rng: random.Random, value: Any, outside: Path) -> Any:
    """Change, remove, add or swap one item of a JSON value."""
    places: list[tuple[Any, Any]] = []
    rest = [value]
    while rest:
        each = rest.pop()
        keys = list(each) if isinstance(each, dict) else range(len(each)) if isinstance(each, list) else ()
        places += [(each, key) for key in keys]
        rest += [each[key] for key in keys]
    if not places:
        return values(rng, outside)
    holder, key = rng.choice(places)
    kind = rng.choice(["value"] * 6 + ["removed", "added", "swapped", "wrapped"])
    if kind == "removed":
        del holder[key]
    elif kind == "added" and isinstance(holder, dict):
        extra = ["isolation", "packages", "data", "prompts", "reward_funcs", "env", "auto_map", "server", "xml_file"]
        extra += ["attn_implementation", "megatron_config", "tokenizer_file", "options", "split", "single_model", "x"]
        holder[rng.choice(extra)] = values(rng, outside)
    elif kind == "swapped":
        other, place = rng.choice(places)
        holder[key], other[place] = json.loads(json.dumps([other[place], holder[key]]))
    elif kind == "wrapped":
        holder[key] = [holder[key]]
    else:
        holder[key] = values(rng, outside)
    return value


def dumped(value: Any) -> str:
    text = json.dumps(value)
    for name, inner in TEXTS.items():
        text = text.replace(json.dumps(f"{PLACE}{name}{PLACE}"), inner)
    return text


def mutate(rng: random.Random, file: Path, files: list[Path], outside: Path, *, has_links: bool = True) -> str:
    """Change, replace or delete a file of a folder at random. Returns the kind of the change."""
    content = file.read_bytes()
    is_json = file.suffix in (".json", ".jsonl")
    kinds = ["json"] * 12 + ["lines"] * 2 if is_json else ["bytes"] * 4
    kind = rng.choice([*kinds, "bytes", "cut", "cut", "empty", "noise", "gone", "other", "folder", "link"])
    if kind == "link" and not has_links:
        kind = "cut"
    if kind == "json":
        lines = content.decode().splitlines() if file.suffix == ".jsonl" else [content.decode()]
        at = rng.randrange(len(lines))
        lines[at] = dumped(changed_json(rng, json.loads(lines[at]), outside))
        file.write_text("\n".join(lines) + "\n", errors="surrogatepass")
    elif kind == "lines":
        lines = content.splitlines(keepends=True)
        for _ in range(rng.randint(1, 3)):
            lines.insert(rng.randrange(len(lines) + 1), rng.choice([*lines, b"\n", b"null\n", b"[]\n", b"\xff\n"]))
        del lines[rng.randrange(len(lines))]
        file.write_bytes(b"".join(lines))
    elif kind == "bytes":
        changed = bytearray(content)
        for _ in range(rng.randint(1, 8)):
            # Half of the changes are in the file's header.
            last = len(changed) if rng.random() < 0.5 else min(len(changed), 300)
            if last:
                changed[rng.randrange(last)] = rng.randrange(256)
        file.write_bytes(changed)
    elif kind == "cut":
        file.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif kind == "empty":
        file.write_bytes(b"")
    elif kind == "noise":
        file.write_bytes(rng.randbytes(rng.randint(1, 2_000)))
    else:
        file.unlink()
        if kind == "other":
            shutil.copy(rng.choice([each for each in files if each != file]), file)
        elif kind == "folder":
            file.mkdir()
        elif kind == "link":
            target = rng.choice([outside / "secret.jsonl", outside, file, Path("/dev/zero"), Path("/dev/null"), "fifo"])
            if target == "fifo":
                os.mkfifo(file)
            else:
                file.symlink_to(target)
    return kind


def sign(checkpoint: Path) -> None:
    """Update the checksums of a changed checkpoint."""
    lines = []
    for name in ("state.json", "tensors.safetensors"):
        if (checkpoint / name).is_file() and (checkpoint / name).resolve().is_relative_to(checkpoint.resolve()):
            lines.append(f"{hashlib.sha256((checkpoint / name).read_bytes()).hexdigest()}  {name}\n")
    if (checkpoint / "SHA256SUMS").is_file():
        (checkpoint / "SHA256SUMS").write_text("".join(lines))


@dataclass
class Guard:
    """Audit hook that records forbidden programs, connections, input, imports, and files outside of folders."""

    allowed: tuple[Path, ...]  # folders that may be written
    forbidden: Path  # folder that may not be read
    code: str  # package that may not be imported
    is_active: bool = False
    seen: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sys.addaudithook(self._heard)  # audit hooks cannot be removed, hence `is_active`
        gc.collect()
        gc.freeze()  # the collections of `watching` skip the many objects of earlier tests

    @contextlib.contextmanager
    def watching(self) -> Iterator[list[str]]:
        gc.collect()  # objects of earlier tests delete their temporary folders
        self.seen = []
        self.is_active = True
        try:
            yield self.seen
        finally:
            self.is_active = False

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_active or event not in _JUDGED:
            return
        self.is_active = False  # ignore events of this method
        try:
            if self._is_wrong(event, arguments):
                self.seen.append(f"{event} {arguments!r:.200}")
        finally:
            self.is_active = True

    def _is_wrong(self, event: str, arguments: tuple[Any, ...]) -> bool:
        if _is_between_processes():
            return False
        if event == "import":
            return str(arguments[0]).partition(".")[0] == self.code
        if event == "ctypes.dlopen":
            return any(self._is_in(arguments[0], folder) for folder in self.allowed)
        if event == "open":
            path, mode, flags = arguments
            if not isinstance(path, (str, bytes, os.PathLike)):
                return False
            # Reading links is allowed, because models may be on another disk.
            if os.path.abspath(os.fsdecode(path)).startswith(f"{os.path.abspath(self.forbidden)}{os.sep}"):
                return True
            is_written = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC) or set(mode or "") & set("wax+")
            return bool(is_written) and not self._may_write(path)
        if event in _CHANGES:
            names = arguments[: _CHANGES[event]]
            folders = [each for each in arguments if type(each) is int and each > 2]
            inside = f"/proc/self/fd/{folders[-1]}" if folders and event in ("os.remove", "os.rmdir") else ""
            return not all(self._may_write(os.path.join(inside, os.fsdecode(each))) for each in names)
        return True

    def _may_write(self, path: Any) -> bool:
        return os.fspath(path) == "/dev/null" or any(self._is_in(path, folder) for folder in self.allowed)

    def _is_in(self, path: Any, folder: Path) -> bool:
        found, root = os.path.realpath(os.fsdecode(path or "")), os.path.realpath(folder)
        return found == root or found.startswith(f"{root}{os.sep}")


def _is_between_processes() -> bool:
    """Return True if the program starts its own worker processes or exchanges messages with them."""
    frame = sys._getframe()
    while frame is not None and not frame.f_globals["__name__"].startswith(_WORKERS):
        frame = frame.f_back
    return frame is not None


_WORKERS = ("multiprocessing.", "collm.envs.vectors.processes")
_CHANGES = {"os.rename": 2, "os.remove": 1, "os.mkdir": 1, "os.rmdir": 1, "os.truncate": 1, "shutil.rmtree": 1}
_CHANGES |= {"os.chmod": 1, "os.symlink": 2, "os.link": 2}
_JUDGED = {
    *_CHANGES,
    *("open", "import", "ctypes.dlopen", "builtins.input", "pickle.find_class", "code.__new__"),
    *("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto", "urllib.Request", "http.client.connect"),
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn"),
}


def called(guard: Guard, call: Guarded, *, max_s: float) -> tuple[list[str], object]:
    """Call a function that reads a run folder. Returns the call's forbidden effects and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    faults: list[str] = []
    status: object = None

    def too_late(number: int, frame: object) -> None:
        raise TimeoutError(f"the call did not end within {max_s:g} s")

    before = signal.signal(signal.SIGALRM, too_late)
    stdin, sys.stdin = sys.stdin, io.StringIO("hello\n")
    with guard.watching() as seen, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            signal.setitimer(signal.ITIMER_REAL, max_s)
            status = call()
        except SystemExit as end:
            status = end.code
        except BaseException as error:
            faults.append(f"{type(error).__name__}: {error!s:.300}{where(error)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    sys.stdin = stdin
    signal.signal(signal.SIGALRM, before)
    told = err.getvalue()
    if "Traceback" in told + out.getvalue():
        faults.append(f"a traceback: {told[-500:]}")
    if status == 2:
        lines = [line for line in told.splitlines() if line.startswith("error: ")]
        if len(lines) != 1 or len(lines[0]) > 2_100:
            faults.append(f"no single line: {told[:500]}")
    return faults + seen, status


def where(error: BaseException) -> str:
    """Return the last lines of collm and of its dependencies in an error's traceback."""
    found = []
    trace = error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if "/collm/" in name or "site-packages" in name:
            found.append(f"{Path(name).parent.name}/{Path(name).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return f" at {' < '.join(found[::-1][:6])}" if found else ""


def digest(folder: Path) -> str:
    """Return the digest of the names and contents of all files in a folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)} {path.is_dir()}\n".encode())
        found.update(path.read_bytes() if path.is_file() else b"")
    return found.hexdigest()
