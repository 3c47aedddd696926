"""Tasks from every kind of source."""

import copy
import csv
import gc
import gzip
import itertools
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

from collm.envs.data import Tasks, files, load_tasks
from collm.envs.data import tasks as data_module

POSTS = [{"post": f"Post number {i}.", "score": i} for i in range(1, 5)]
TEXTS = [row["post"] for row in POSTS]


def load(data, split="train", **kwargs):
    return load_tasks(data, split, text_fields=["post"], **kwargs)


def texts(tasks: Tasks) -> list[str]:
    return [task["post"] for task in tasks]


@pytest.fixture
def written(tmp_path):
    def write(rows, name="rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def posts(written) -> Path:
    return written(POSTS)


@pytest.fixture(params=[False, True])
def is_in_place(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(files, "LARGE_BYTES", 1)
        monkeypatch.setattr(files, "LARGE_ROWS", 1)
    return request.param


@pytest.fixture
def datasets():
    return pytest.importorskip("datasets")


def dataset():
    return pytest.importorskip("datasets").Dataset.from_list(POSTS)


LINES = "".join(json.dumps(row) + "\n" for row in POSTS).encode()
CELLS = "".join(f'"{row["post"]}",{row["score"]}\n' for row in POSTS)
WRITERS = {
    "posts.jsonl": lambda path: path.write_bytes(LINES),
    "posts.jsonl.gz": lambda path: path.write_bytes(gzip.compress(LINES, mtime=0)),
    "posts.json": lambda path: path.write_text(json.dumps(POSTS)),
    "posts.csv": lambda path: path.write_text("\ufeffpost,score\n" + CELLS),
    "posts.parquet": lambda path: dataset().to_parquet(str(path)),
    "posts": lambda path: dataset().save_to_disk(str(path)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows_in_order(name, is_in_place, tmp_path):
    WRITERS[name](tmp_path / name)
    data = str(tmp_path / name)
    tasks = load(data)
    assert texts(tasks) == TEXTS and [int(task["score"]) for task in tasks] == [1, 2, 3, 4]
    assert tasks.is_in_place == (is_in_place and name in ("posts.jsonl", "posts.parquet", "posts"))
    assert tasks.task(2) == tasks.task("train-3") == tasks[2] and texts(tasks[1:3]) == TEXTS[1:3]
    assert texts(pickle.loads(pickle.dumps(tasks))) == TEXTS
    for which in (4, -1, "train-5", True, 1.0, None):
        with pytest.raises(ValueError, match=r"no task .*0\.\.3.*'train-1'"):
            tasks.task(which)
    parts = [texts(load(data, split, test_fraction=0.5)) for split in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == TEXTS and not set(parts[0]) & set(parts[1])


def test_a_dataset_with_splits_gives_the_requested_one(datasets, tmp_path):
    train, test = (datasets.Dataset.from_list(rows) for rows in (POSTS[:3], POSTS[3:]))
    parts = datasets.DatasetDict({"train": train, "test": test})
    parts.save_to_disk(str(tmp_path / "posts"))
    assert texts(load(parts, "test")) == texts(load(str(tmp_path / "posts"), "test")) == ["Post number 4."]
    with pytest.raises(ValueError, match=r"'dev'.*'train', 'test'"):
        load(str(tmp_path / "posts"), "dev")


def test_columns_are_renamed_and_splits_are_files_or_fractions(tmp_path, written):
    path = written([{"source": ["One.", "Two."], "key": 7, "tests": ["a", "b"]}])
    columns = {"post": "source", "id": "key"}
    tasks = load_tasks(str(path), text_fields=["post"], other_fields=["tests"], columns=columns)
    assert tasks[0] == {"source": ["One.", "Two."], "key": 7, "tests": ["a", "b"], "post": "One. Two.", "id": "7"}
    train, test = written(POSTS[:3], "train.jsonl"), written(POSTS[3:], "test.jsonl")
    for data in (str(tmp_path / "{split}.jsonl"), {"train": train, "test": str(test)}):
        assert [texts(load(data, split)) for split in ("train", "test")] == [TEXTS[:3], TEXTS[3:]]
    with pytest.raises(ValueError, match=r"'dev'.*'train', 'test'"):
        load({"train": train, "test": test}, "dev")
    rows = [{"post": f"Post {i}."} for i in range(400)]
    path = str(written(rows))
    train, test = (texts(load(path, split, test_fraction=0.25)) for split in ("train", "test"))
    assert not set(train) & set(test) and len(train) + len(test) == 400 and 60 < len(test) < 140
    before = texts(load(str(written(rows[:50], "a.jsonl")), "test", test_fraction=0.25))
    assert test[: len(before)] == before


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"text": "One."}, r"rows\.jsonl, row 2 .*'post', only \['text'\]"),
        *(({"post": post}, r"rows\.jsonl, row 2, column 'post' is empty") for post in ("", " \n", None, [], ["", " "])),
        ({"post": "\ud83d"}, "row 2, column 'post' .*surrogate"),
        ({"post": 3}, "row 2, column 'post' .*got int"),
        ({"post": ["One.", 2]}, "row 2, column 'post' .*got list"),
        (["One."], "row 2 .*got list"),
        ({"post": "Two.", "id": "train-1"}, "rows 1 and 2 .*'train-1'"),
    ],
)
def test_an_invalid_row_is_an_error_with_its_place(row, complaint, written):
    with pytest.raises(ValueError, match=complaint):
        load(str(written([POSTS[0], row])))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("rows.jsonl", b'{"post": "One."}\n{"post": \n', r"rows\.jsonl, line 2 .*JSON"),
        ("rows.json", b'{"post": "One."}', r"rows\.json .*list of objects, got dict"),
        ("rows.csv", b"post,score\nOne.\n", r"rows\.csv, row 1 .*\['post', 'score'\]"),
        ("rows.csv", b'post\n"One.\n', r"rows\.csv, after row 0 .*CSV"),
        ("rows.parquet", b"not parquet", r"rows\.parquet .*Parquet"),
        ("rows.jsonl", b"", r"rows\.jsonl has no rows .*'train'"),
        ("rows.jsonl", b"[" * 100_000, r"rows\.jsonl, line 1 .*nested"),
        ("rows.jsonl.gz", b'{"post": "One."}', r"rows\.jsonl\.gz .*gzip"),
        ("rows.jsonl.gz", gzip.compress(LINES, mtime=0)[:-9], r"rows\.jsonl\.gz .*gzip"),
        ("rows.txt", b"One.", r"rows\.txt .*\.jsonl, \.json, \.csv, \.parquet"),
        ("rows.jsonl", '{"post": "Caf\xe9"}'.encode("latin-1"), r"rows\.jsonl .*UTF-8"),
    ],
)
def test_a_broken_file_is_an_error_with_its_name(name, content, complaint, tmp_path):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=complaint):
        load(str(path))


@pytest.mark.parametrize("large", [False, True])
def test_empty_rows_can_be_left_out(large, monkeypatch):
    if large:
        monkeypatch.setattr("collm.envs.data.files.LARGE_ROWS", 1)
    rows = [{"post": post} for post in ("One.", None, " ", [], *(f"Number {n}." for n in range(9)))]

    def left(split="train", **settings):
        return [task["post"] for task in load_tasks(rows, split, text_fields=["post"], on_bad_row="skip", **settings)]

    assert left() == ["One.", *(f"Number {n}." for n in range(9))]
    assert sorted(left(test_fraction=0.5) + left("test", test_fraction=0.5)) == sorted(left())
    with pytest.raises(ValueError, match=r"row 2, column 'post' is empty.*on_bad_row='skip'"):
        list(load_tasks(rows, text_fields=["post"]))
    with pytest.raises(ValueError, match="on_bad_row='drop'"):
        load_tasks(rows, text_fields=["post"], on_bad_row="drop")
    for columns in ("post:selftext", {"post": 3}, 3):
        with pytest.raises(ValueError, match=f"columns={columns!r} must be a dict"):
            load_tasks(rows, text_fields=["post"], columns=columns)


def test_a_csv_cell_may_be_long_and_a_missing_file_or_a_foreign_directory_is_an_error(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("post\n" + "long " * 40_000 + "\n")
    assert len(load(str(path))[0]["post"]) == 200_000
    assert csv.field_size_limit() == 131_072
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        load(str(tmp_path / "none.jsonl"))
    pytest.importorskip("datasets")
    with pytest.raises(ValueError, match="save_to_disk"):
        load(str(tmp_path))


def test_a_name_with_the_suffix_of_a_file_is_not_requested_from_the_hub_and_one_with_a_dot_is(monkeypatch):
    monkeypatch.setattr(data_module, "_hub_rows", lambda *_: pytest.fail("the hub was asked"))
    for name in ("posts.jsonl.zst", "data/posts.txt", "posts.parquet.gz", "archive.tar.gz", "posts.xlsx"):
        with pytest.raises((ValueError, FileNotFoundError), match=re.escape(name)):
            load(name)
    monkeypatch.setattr(data_module, "_hub_rows", lambda *_: [(1, POSTS[0])])
    for name in ("glue", "owner/name-v1.0", "owner/name/default@v2.1:train[:100]", "owner/c4.en"):
        assert len(load(name)) == 1


@pytest.mark.parametrize(
    ("data", "settings", "complaint"),
    [
        (None, {"split": "test"}, r"rows\.jsonl .*'test'"),
        (POSTS, {"split": "test"}, "list .*'test'"),
        *((None, {"test_fraction": value}, f"test_fraction={value}") for value in (0, 1, -0.1)),
        ({"train": "owner/name"}, {"test_fraction": 0.5}, "test_fraction=0.5"),
        (None, {"columns": {"pots": "source"}}, r"\['pots'\]"),
        ("builtin", {}, "built-in data .*'train'"),
        ("One post, two posts.", {}, "'One post, two posts.'"),
        (7, {}, "'builtin', a path, .* got int: 7"),
        (b"posts.jsonl", {}, "bytes"),
        ([["One."]], {}, "got list"),
    ],
)
def test_wrong_arguments_are_refused(data, settings, complaint, posts):
    is_of_another_type = data == [["One."]] or isinstance(data, int | bytes)
    with pytest.raises(TypeError if is_of_another_type else ValueError, match=complaint):
        load(data or str(posts), **settings)
    with pytest.raises(TypeError, match="NoneType"):
        load(None)


@pytest.mark.parametrize(
    ("data", "split", "asked"),
    [
        ("owner/posts", "train", ("owner/posts", "train")),
        ("owner/slices:validation[:2]", "validation", ("owner/slices", "validation[:2]")),
        ("owner/train_only:train[:2]", "train", ("owner/train_only", "train[:2]")),
        ("owner/sets/main@e53f048:train[:2]", "train", ("owner/sets", "train[:2]", "main", "e53f048")),
        ("owner/sets/main", "test", ("owner/sets", "test", "main", None)),
        ("owner/sets@v1.0", "test", ("owner/sets", "test", None, "v1.0")),
        ({"test": "owner/mapped:test[:2]"}, "test", ("owner/mapped", "test[:2]")),
    ],
)
def test_a_hub_name_is_loaded_with_its_split(data, split, asked, datasets, monkeypatch):
    seen = []

    def load_dataset(path, split, name=None, revision=None):
        seen.append((path, split, name, revision))
        return dataset()

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_tasks(data, split, text_fields=["post"], columns={"id": "score"})
    assert seen == [(*asked, None, None)[:4]]


def test_a_slice_of_a_hub_split_is_divided_and_an_unreachable_name_is_an_error(datasets, monkeypatch):
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: dataset())
    with pytest.raises(ValueError, match="'test'"):
        load("owner/other:train[:4]", "test")
    parts = [texts(load("owner/other:train[:4]", split, test_fraction=0.5)) for split in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == TEXTS and not set(parts[0]) & set(parts[1])

    def unreachable(name, split, **chosen):
        raise ConnectionError(f"cannot reach {name}")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConnectionError, match=r"'owner/none'.*unset HF_HUB_OFFLINE"):
        load("owner/none")


GIVEN = {
    "list": lambda rows: rows,
    "tuple": tuple,
    "table": lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows),
    "stream": lambda rows: pytest.importorskip("datasets").Dataset.from_list(rows).to_iterable_dataset(),
    "generator": lambda rows: (row for row in rows),
}


@pytest.mark.parametrize("name", GIVEN)
def test_rows_may_be_given_as_an_object(name):
    tasks = load({"test": GIVEN[name](POSTS)}, "test")
    assert texts(tasks) == TEXTS and tasks[1]["id"] == "test-2"
    assert texts(pickle.loads(pickle.dumps(tasks))) == TEXTS


@pytest.mark.parametrize("large", [50, 5_000])
def test_the_first_rows_of_an_endless_iterable_are_used(caplog, monkeypatch, large):
    monkeypatch.setattr(data_module, "MAX_STREAMED", 2_500)
    monkeypatch.setattr(files, "LARGE_ROWS", large)
    endless = ({"post": f"Post {number}."} for number in itertools.count())
    tasks = load(endless)
    assert texts(tasks) == [f"Post {number}." for number in range(2_500)] and tasks.is_in_place == (large == 50)
    assert "first 2500 rows" in caplog.text
    assert texts(load(endless)) == texts(tasks), "other copies of an environment are given the same object"
    caplog.clear()
    assert len(load(itertools.islice(endless, 2_500))) == 2_500 and not caplog.text


@pytest.mark.parametrize("name", ["stream", "generator"])
@pytest.mark.parametrize("large", [5, 1_000])
@pytest.mark.parametrize("max_rows", [1, 6, 7, 8, 19, 20, 21])
def test_more_rows_are_reported_for_every_cut_of_a_block(monkeypatch, max_rows, large, name):
    monkeypatch.setattr(files, "BLOCK", 7)
    monkeypatch.setattr(files, "LARGE_ROWS", large)
    rows = [{"post": f"Post {number}."} for number in range(20)]
    taken, has_more = files.rows_of_stream(GIVEN[name](rows), max_rows)
    assert list(taken) == list(enumerate(rows[:max_rows], start=1))
    assert has_more == (max_rows < 20)


@pytest.mark.parametrize("name", ["generator", "stream", "table", "list"])
@pytest.mark.parametrize("test_fraction", [None, 0.3])
def test_many_rows_of_an_object_are_pickled_as_the_name_of_a_file(monkeypatch, name, test_fraction):
    monkeypatch.setattr(files, "LARGE_ROWS", 100)
    given = GIVEN[name]([{"post": f"Post {number}.", "score": number} for number in range(2_345)])
    split = "train" if test_fraction is None else "test"
    tasks = load(given, split, test_fraction=test_fraction)
    assert tasks.is_in_place and len({task["score"] for task in tasks}) == len(tasks)
    assert len(tasks) == 2_345 if test_fraction is None else 500 < len(tasks) < 900
    code = "import pickle, sys; tasks = pickle.load(sys.stdin.buffer); print(len(tasks), tasks[-1], tasks.is_in_place)"
    pickled = pickle.dumps(tasks)
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().strip() == f"{len(tasks)} {tasks[-1]} True"
    assert len(pickled) < 2_000 and texts(pickle.loads(pickle.dumps(tasks))) == texts(tasks)


def test_the_file_of_an_objects_rows_is_deleted_with_its_last_user(monkeypatch):
    monkeypatch.setattr(files, "LARGE_ROWS", 10)
    rows = files.rows_of_stream(({"post": f"Post {number}."} for number in range(20)), 1_000)[0]
    path = rows._spool._file
    if not (pid := os.fork()):
        os._exit(len(rows) - 20 if rows[3][1] == {"post": "Post 3."} else 1)
    assert os.waitpid(pid, 0)[1] == 0 and path.exists()
    again = pickle.loads(pickle.dumps(rows))
    del rows
    gc.collect()
    assert not path.exists()
    with pytest.raises(ValueError, match=re.escape(str(path))):
        again[0]


def test_lines_are_numbered_and_only_split_at_line_feeds(is_in_place, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"post": "One\u2028two."}\n\r\n\n{"post": "Three."}\r\n'.encode())
    tasks = load(str(path))
    assert tasks.is_in_place is is_in_place
    assert (texts(tasks), tasks[1]["id"]) == (["One\u2028two.", "Three."], "train-4")
    path.write_bytes(b'\n{"post": }\n["Five."]\n{"post": "\xe9"}')
    if is_in_place:  # then broken lines are errors on access
        tasks = load(str(path))
        for at, complaint in enumerate((r"rows\.jsonl, line 2 .*JSON", "row 3 .*got list", "line 4 .*UTF-8")):
            with pytest.raises(ValueError, match=complaint):
                tasks[at]


MILLION = {
    "file": "sys.argv[1]",
    "generator": "rows()",
    "stream": "datasets.load_dataset('json', data_files=sys.argv[1], split='train').to_iterable_dataset()",
    "hub": "'owner/name'",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MILLION)
def test_a_million_rows_start_soon_in_little_memory(tmp_path, kind):
    code = f"""
import json, pickle, resource, sys, time
from collm.envs.writing import TLDR
def rows():
    for number in range(1_000_000):
        yield {{"id": str(number), "post": f"Post {{number}} tells " + "of one thing or another " * 8}}
with open(sys.argv[1], "w") as file:
    file.writelines(json.dumps(row) + "\\n" for row in rows())
if {kind!r} in ("stream", "hub"):
    import datasets
    datasets.disable_progress_bars()
    table = datasets.load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[1] + ".cache")
    datasets.load_dataset = lambda *_, **__: table
data = {MILLION[kind]}
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
env = TLDR(data=data)
env.reset(seed=0)
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)
print(len(pickle.dumps(env)), len(env.tasks))
"""
    command = [sys.executable, "-c", code, str(tmp_path / "posts.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes, size, count = map(float, done.stdout.split())
    assert count == 1_000_000 and seconds < 2 and megabytes < 300 and size < 1_000_000, done.stdout


def test_local_text_files_need_no_data_libraries_and_are_loaded_again_if_they_change(written, posts):
    code = f"import sys; from collm.envs.data import load_tasks; load_tasks({str(posts)!r}, text_fields=['post']); "
    code += "assert not {'datasets', 'pyarrow', 'pandas'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    tasks = load(str(posts))
    pickled = pickle.dumps(tasks)
    assert load(posts) is tasks and copy.deepcopy(tasks) is tasks and pickle.loads(pickled) is tasks
    assert len(pickled) < 1000 and b"Post number" not in pickled
    written(POSTS[:2])
    assert len(load(str(posts))) == 2
    data_module._load.cache_clear()  # as in another process
    with pytest.raises(ValueError, match=r"rows\.jsonl was changed"):
        pickle.loads(pickled)
