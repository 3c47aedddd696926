"""Tasks are loaded from every kind of source, and no row disappears without a word."""

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

from collm.envs.data import Tasks, files, load_tasks, spool
from collm.envs.data import tasks as data_module

POSTS = [{"post": f"Post number {i}.", "score": i} for i in range(1, 5)]


def load(data, split="train", **kwargs):
    return load_tasks(data, split, text_fields=["post"], **kwargs)


def texts(tasks: Tasks) -> list[str]:
    return [task["post"] for task in tasks]


@pytest.fixture
def posts(tmp_path: Path) -> Path:
    return written(tmp_path / "posts.jsonl", POSTS)


def written(path: Path, rows: list) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_jsonl(path: Path) -> Path:
    return written(path / "posts.jsonl", POSTS)


def write_compressed_jsonl(path: Path) -> Path:
    file = path / "posts.jsonl.gz"
    file.write_bytes(gzip.compress(written(path / "posts.jsonl", POSTS).read_bytes()))
    return file


def write_json(path: Path) -> Path:
    file = path / "posts.json"
    file.write_text(json.dumps(POSTS))
    return file


def write_csv(path: Path) -> Path:
    file = path / "posts.csv"
    file.write_text("\ufeffpost,score\n" + "".join(f'"{row["post"]}",{row["score"]}\n' for row in POSTS))
    return file


def write_parquet(path: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    file = path / "posts.parquet"
    datasets.Dataset.from_list(POSTS).to_parquet(str(file))
    return file


def write_saved_dataset(path: Path) -> Path:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_list(POSTS).save_to_disk(str(path / "posts"))
    return path / "posts"


WRITERS = [write_jsonl, write_compressed_jsonl, write_json, write_csv, write_parquet, write_saved_dataset]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_rows_in_order(write, tmp_path):
    tasks = load(str(write(tmp_path)))
    assert texts(tasks) == [row["post"] for row in POSTS]
    assert [int(task["score"]) for task in tasks] == [1, 2, 3, 4]


def test_a_saved_dataset_with_splits_gives_the_one_asked_for(tmp_path):
    datasets = pytest.importorskip("datasets")
    parts = {"train": datasets.Dataset.from_list(POSTS[:3]), "test": datasets.Dataset.from_list(POSTS[3:])}
    datasets.DatasetDict(parts).save_to_disk(str(tmp_path / "posts"))
    assert texts(load(str(tmp_path / "posts"), "test")) == ["Post number 4."]
    with pytest.raises(ValueError, match=r"'dev'.*'train', 'test'"):
        load(str(tmp_path / "posts"), "dev")


def test_a_column_can_have_another_name(tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"source": "One.", "key": 7}])
    tasks = load(str(path), columns={"post": "source", "id": "key"})
    assert tasks[0] == {"source": "One.", "key": 7, "post": "One.", "id": "7"}


def test_a_list_of_sentences_is_joined_by_spaces(tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"post": ["One.", "Two."]}])
    assert texts(load(str(path))) == ["One. Two."]


def test_other_fields_keep_their_type(tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"post": "One.", "tests": ["a", "b"]}])
    tasks = load_tasks(str(path), text_fields=["post"], other_fields=["tests"])
    assert tasks[0]["tests"] == ["a", "b"]


def test_a_character_that_only_some_readers_take_for_a_line_end_stays(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"post": "One\u2028two."}\n\n{"post": "Three."}\n', encoding="utf-8")
    tasks = load(str(path))
    assert texts(tasks) == ["One\u2028two.", "Three."]
    assert tasks[1]["id"] == "train-3"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"text": "One."}, r"rows\.jsonl, row 2 has no column 'post', only \['text'\]"),
        ({"post": ""}, r"rows\.jsonl, row 2, column 'post' is empty"),
        ({"post": " \n"}, "row 2, column 'post' is empty"),
        ({"post": None}, "row 2, column 'post' is empty"),
        ({"post": []}, "row 2, column 'post' is empty"),
        ({"post": ["", " "]}, "row 2, column 'post' is empty"),
        ({"post": "\ud83d"}, "row 2, column 'post' holds half of a surrogate pair"),
        ({"post": 3}, "row 2, column 'post' must be a text or a list of texts, got int"),
        ({"post": ["One.", 2]}, "row 2, column 'post' must be a text or a list of texts, got list"),
        (["One."], "row 2 must be a JSON object of columns, got list"),
    ],
)
def test_a_row_that_cannot_be_used_is_an_error_with_its_place(row, complaint, tmp_path):
    path = written(tmp_path / "rows.jsonl", [POSTS[0], row])
    with pytest.raises(ValueError, match=complaint):
        load(str(path))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("rows.jsonl", '{"post": "One."}\n{"post": \n', r"rows\.jsonl, line 2 is not valid JSON"),
        ("rows.json", '{"post": "One."}', "must hold a list of objects, got dict"),
        ("rows.csv", "post,score\nOne.\n", "row 1 has not as many cells as the header"),
        ("rows.csv", 'post\n"One.\n', "after row 0 is not valid CSV"),
        ("rows.parquet", "not parquet", "is not a Parquet file"),
        ("rows.jsonl", "", "has no rows for the split 'train'"),
        ("rows.jsonl", "[" * 100_000, r"rows\.jsonl, line 1 is nested too deep"),
        ("rows.jsonl.gz", '{"post": "One."}', r"rows\.jsonl\.gz is not a whole gzip file"),
        ("rows.txt", "One.", "is of an unknown format; give one of .jsonl, .json, .csv, .parquet"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(name, content, complaint, tmp_path):
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=complaint):
        load(str(path))


def test_a_gzip_file_that_breaks_off_is_an_error(tmp_path):
    path = write_compressed_jsonl(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"posts\.jsonl\.gz is not a whole gzip file"):
        load(str(path))


def test_a_cell_of_a_csv_file_may_be_as_long_as_a_book(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("post\n" + "long " * 40_000 + "\n")
    assert len(load(str(path))[0]["post"]) == 200_000
    assert csv.field_size_limit() == 131_072


def test_a_file_that_is_not_utf8_is_an_error(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('{"post": "Caf\xe9"}'.encode("latin-1"))
    with pytest.raises(ValueError, match="is not UTF-8 text"):
        load(str(path))


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no data file at .*none\.jsonl"):
        load(str(tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    "name", ["posts.jsonl.zst", "data/posts.txt", "posts.parquet.gz", "archive.tar.gz", "posts.xlsx"]
)
def test_a_name_that_ends_as_files_do_is_not_looked_for_on_the_hub(name, monkeypatch):
    monkeypatch.setattr(data_module, "_hub_rows", lambda *_: pytest.fail("the hub was asked"))
    with pytest.raises((ValueError, FileNotFoundError), match=re.escape(name)):
        load(name)


@pytest.mark.parametrize("name", ["glue", "owner/name-v1.0", "owner/name/default@v2.1:train[:100]", "owner/c4.en"])
def test_a_hub_name_may_have_a_dot_in_it(name, monkeypatch):
    monkeypatch.setattr(data_module, "_hub_rows", lambda *_: [(1, POSTS[0])])
    assert len(load(name)) == 1


def test_a_directory_that_datasets_did_not_write_is_an_error(tmp_path):
    pytest.importorskip("datasets")
    with pytest.raises(ValueError, match="not one written by datasets' save_to_disk"):
        load(str(tmp_path))


def test_two_rows_with_one_id_are_an_error(tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"id": "a", "post": "One."}, {"id": "a", "post": "Two."}])
    with pytest.raises(ValueError, match="rows 1 and 2 have the same id 'a'"):
        load(str(path))


def test_the_split_can_be_part_of_the_path(tmp_path):
    written(tmp_path / "train.jsonl", POSTS[:3])
    written(tmp_path / "test.jsonl", POSTS[3:])
    assert len(load(str(tmp_path / "{split}.jsonl"), "train")) == 3
    assert len(load(str(tmp_path / "{split}.jsonl"), "test")) == 1


def test_each_split_can_have_a_source_of_its_own(tmp_path, posts):
    other = written(tmp_path / "other.jsonl", POSTS[:1])
    data = {"train": str(posts), "test": str(other)}
    assert len(load(data, "test")) == 1
    with pytest.raises(ValueError, match=r"'dev'.*'train', 'test'"):
        load(data, "dev")


def test_a_lone_file_is_not_silently_tested_on_its_training_rows(posts):
    with pytest.raises(ValueError, match="does not say which of its rows are 'test'"):
        load(str(posts), "test")


def test_test_fraction_divides_a_file_into_two_parts_that_do_not_overlap(tmp_path):
    path = written(tmp_path / "rows.jsonl", [{"post": f"Post {i}."} for i in range(400)])
    train, test = (texts(load(str(path), split, test_fraction=0.25)) for split in ("train", "test"))
    assert not set(train) & set(test)
    assert len(train) + len(test) == 400
    assert 60 < len(test) < 140


def test_test_fraction_keeps_the_place_of_old_rows_when_rows_are_added(tmp_path):
    rows = [{"post": f"Post {i}."} for i in range(100)]
    before = texts(load(str(written(tmp_path / "a.jsonl", rows[:50])), "test", test_fraction=0.25))
    after = texts(load(str(written(tmp_path / "b.jsonl", rows)), "test", test_fraction=0.25))
    assert after[: len(before)] == before


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2])
def test_test_fraction_must_leave_both_parts(fraction, posts):
    with pytest.raises(ValueError, match="test_fraction must"):
        load(str(posts), test_fraction=fraction)


def test_test_fraction_is_refused_where_the_splits_are_given(posts):
    with pytest.raises(ValueError, match="test_fraction divides rows without splits"):
        load({"train": str(posts)}, test_fraction=0.5)


def test_columns_for_fields_that_nobody_knows_are_refused(posts):
    with pytest.raises(ValueError, match=r"columns renames unknown fields \['pots'\]"):
        load(str(posts), columns={"pots": "source"})


def test_built_in_data_is_refused_where_there_is_none():
    with pytest.raises(ValueError, match="there is no built-in data for the split 'train'"):
        load("builtin")


def test_a_changed_file_is_read_again(tmp_path):
    path = written(tmp_path / "rows.jsonl", POSTS)
    assert len(load(str(path))) == 4
    written(path, POSTS[:2])
    assert len(load(str(path))) == 2


def test_a_task_is_found_by_index_and_by_id(posts):
    tasks = load(str(posts))
    assert tasks.task(2) is tasks.task("train-3") is tasks[2]
    assert texts(tasks[1:3]) == ["Post number 2.", "Post number 3."]


@pytest.mark.parametrize("which", [4, -1, "train-5", True, 1.0, None])
def test_an_unknown_task_is_an_error_with_the_range(which, posts):
    with pytest.raises(ValueError, match=r"no task .*0\.\.3.*'train-1'"):
        load(str(posts)).task(which)


def test_tasks_are_shared_by_copies_and_survive_pickling(posts):
    tasks = load(str(posts))
    assert load(str(posts)) is tasks
    assert copy.deepcopy(tasks) is tasks
    assert texts(pickle.loads(pickle.dumps(tasks))) == texts(tasks)


def test_a_hub_name_out_of_reach_is_an_error_that_says_so(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def unreachable(name, split, **chosen):
        raise ConnectionError(f"cannot reach {name}")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConnectionError, match=r"'owner/none' is no file here.*unset HF_HUB_OFFLINE"):
        load("owner/none")


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
def test_a_hub_name_is_loaded_with_the_split_that_it_names(data, split, asked, monkeypatch):
    datasets = pytest.importorskip("datasets")
    seen = []

    def load_dataset(path, split, name=None, revision=None):
        seen.append((path, split, name, revision))
        return datasets.Dataset.from_list(POSTS)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_tasks(data, split, text_fields=["post"], columns={"id": "score"})
    assert seen == [(*asked, None, None)[:4]]


def test_a_slice_of_a_hub_split_is_not_silently_tested_on_its_training_rows(monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: datasets.Dataset.from_list(POSTS * 1))
    with pytest.raises(ValueError, match="does not say which of its rows are 'test'"):
        load("owner/other:train[:4]", "test")
    parts = [texts(load("owner/other:train[:4]", split, test_fraction=0.5)) for split in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == [row["post"] for row in POSTS] and not set(parts[0]) & set(parts[1])


def objects(datasets):
    return {
        "a list": POSTS,
        "a tuple": tuple(POSTS),
        "a Dataset": datasets.Dataset.from_list(POSTS),
        "an IterableDataset": datasets.Dataset.from_list(POSTS).to_iterable_dataset(),
        "a generator": (row for row in POSTS),
    }


@pytest.mark.parametrize("name", ["a list", "a tuple", "a Dataset", "an IterableDataset", "a generator"])
def test_rows_may_be_given_as_an_object(name):
    given = objects(pytest.importorskip("datasets"))[name]
    if name not in ("an IterableDataset", "a generator"):
        with pytest.raises(ValueError, match="does not say which of its rows are 'test'"):
            load(given, "test")
        assert texts(load({"test": given}, "test")) == [row["post"] for row in POSTS]
    tasks = load(given)
    assert texts(tasks) == [row["post"] for row in POSTS] and tasks[1]["id"] == "train-2"
    assert texts(pickle.loads(pickle.dumps(tasks))) == texts(tasks)


def test_a_dataset_dict_gives_the_split_asked_for():
    datasets = pytest.importorskip("datasets")
    parts = {"train": datasets.Dataset.from_list(POSTS[:3]), "test": datasets.Dataset.from_list(POSTS[3:])}
    assert texts(load(datasets.DatasetDict(parts), "test")) == ["Post number 4."]


@pytest.mark.parametrize("large", [50, 5_000])
def test_of_an_endless_iterable_the_first_rows_are_taken(caplog, monkeypatch, large):
    monkeypatch.setattr(data_module, "MAX_STREAMED", 2_500)
    monkeypatch.setattr(files, "LARGE_ROWS", large)
    endless = ({"post": f"Post {number}."} for number in itertools.count())
    tasks = load(endless)
    assert len(tasks) == 2_500 and tasks.is_in_place == (large == 50)
    assert [task["post"] for task in tasks] == [f"Post {number}." for number in range(2_500)]
    assert "the first 2500 rows are taken" in caplog.text
    assert texts(load(endless)) == texts(tasks), "other copies of an environment are given the same object"
    caplog.clear()
    assert len(load(itertools.islice(endless, 2_500))) == 2_500 and not caplog.text


@pytest.mark.parametrize("is_dataset", [False, True])
@pytest.mark.parametrize("large", [5, 1_000])
@pytest.mark.parametrize("max_rows", [1, 6, 7, 8, 19, 20, 21])
def test_more_rows_are_told_of_wherever_the_cut_falls_in_a_block(monkeypatch, max_rows, large, is_dataset):
    monkeypatch.setattr(spool, "BLOCK", 7)
    monkeypatch.setattr(files, "LARGE_ROWS", large)
    rows = [{"post": f"Post {number}."} for number in range(20)]
    given = iter(rows)
    if is_dataset:
        given = pytest.importorskip("datasets").Dataset.from_list(rows).to_iterable_dataset()
    taken, has_more = files.rows_of_stream(given, max_rows)
    assert list(taken) == list(enumerate(rows[:max_rows], start=1))
    assert has_more == (max_rows < 20)


def iterables(datasets):
    rows = [{"post": f"Post {number}.", "score": number} for number in range(2_345)]
    table = datasets.Dataset.from_list(rows)
    return {"generator": (row for row in rows), "stream": table.to_iterable_dataset(), "table": table, "list": rows}


@pytest.mark.parametrize("name", ["generator", "stream", "table", "list"])
@pytest.mark.parametrize("test_fraction", [None, 0.3])
def test_many_rows_of_an_object_are_read_where_they_are_and_travel_by_name(monkeypatch, name, test_fraction):
    monkeypatch.setattr(files, "LARGE_ROWS", 100)
    given = iterables(pytest.importorskip("datasets"))[name]
    split = "train" if test_fraction is None else "test"
    tasks = load(given, split, test_fraction=test_fraction)
    assert tasks.is_in_place and len({task["score"] for task in tasks}) == len(tasks)
    assert len(tasks) == 2_345 if test_fraction is None else 500 < len(tasks) < 900
    code = "import pickle, sys; tasks = pickle.load(sys.stdin.buffer); print(len(tasks), tasks[-1], tasks.is_in_place)"
    pickled = pickle.dumps(tasks)
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout.decode().strip() == f"{len(tasks)} {tasks[-1]} True"
    assert len(pickled) < 2_000 and texts(pickle.loads(pickle.dumps(tasks))) == texts(tasks)


def test_rows_of_an_object_on_disk_end_with_their_last_user(monkeypatch):
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
    with pytest.raises(ValueError, match="is gone with the process that was given it; make the environment anew"):
        again[0]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (7, "data must be 'builtin', a path, .* got int: 7"),
        (None, "got NoneType"),
        (b"posts.jsonl", "got bytes"),
        ([["One."]], "rows must be dicts of columns, got list"),
    ],
)
def test_data_of_another_type_is_refused(given, complaint):
    with pytest.raises(TypeError, match=complaint):
        load(given)


def test_a_path_may_be_a_path(posts):
    assert load(posts) is load(str(posts))


def test_text_that_is_neither_a_file_nor_a_hub_name_is_refused():
    with pytest.raises(ValueError, match="is no file here, nor the name of a data set on the hub"):
        load("One post, two posts.")


@pytest.fixture
def small_is_large(monkeypatch):
    monkeypatch.setattr(files, "LARGE_BYTES", 1)
    monkeypatch.setattr(files, "LARGE_ROWS", 1)


@pytest.mark.parametrize("write", [write_jsonl, write_parquet, write_saved_dataset])
def test_rows_in_place_are_the_rows(small_is_large, write, tmp_path):
    tasks = load(str(write(tmp_path)))
    assert tasks.is_in_place and texts(tasks) == [row["post"] for row in POSTS]
    assert tasks.task(2) == tasks.task("train-3") == tasks[2] and texts(tasks[1:3]) == texts(tasks)[1:3]
    assert texts(pickle.loads(pickle.dumps(tasks))) == texts(tasks)
    with pytest.raises(ValueError, match="'train-5'"):
        tasks.task("train-5")
    parts = [texts(load(str(write(tmp_path)), split, test_fraction=0.5)) for split in ("train", "test")]
    assert sorted(parts[0] + parts[1]) == texts(tasks)


def test_lines_in_place_are_numbered_and_refused_like_others(small_is_large, tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"post": "One\u2028two."}\n\r\n\n{"post": "Three."}\r\n{"post": }\n["Five."]'.encode())
    tasks = load(str(path))
    assert (len(tasks), tasks[0]["post"], tasks[1]["id"]) == (4, "One\u2028two.", "train-4")
    with pytest.raises(ValueError, match=r"rows\.jsonl, line 5 is not valid JSON"):
        tasks[2]
    with pytest.raises(ValueError, match="row 6 must be a JSON object"):
        tasks[3]


def test_a_pickle_of_tasks_says_where_they_are_and_refuses_others(posts):
    tasks = load(str(posts))
    pickled = pickle.dumps(tasks)
    assert len(pickled) < 1000 and b"Post number" not in pickled
    assert pickle.loads(pickled) is tasks
    written(posts, POSTS[:2])
    data_module._load.cache_clear()  # as in another process
    with pytest.raises(ValueError, match="has changed or gone since its tasks were pickled"):
        pickle.loads(pickled)


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
import itertools, json, pickle, resource, sys, time
from collm.envs.writing import TLDR
if {kind!r} in ("stream", "hub"):
    import datasets
    datasets.disable_progress_bars()
    table = datasets.load_dataset("json", data_files=sys.argv[1], split="train", cache_dir=sys.argv[1] + ".cache")
    datasets.load_dataset = lambda *_, **__: table
def rows():
    for number in range(1_000_000):
        yield {{"id": str(number), "post": f"Post {{number}} tells " + "of one thing or another " * 8}}
data = {MILLION[kind]}
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
env = TLDR(data=data)
env.reset(seed=0)
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)
print(len(pickle.dumps(env)), len(env.tasks))
"""
    path = tmp_path / "posts.jsonl"
    with path.open("w") as file:
        for number in range(1_000_000):
            file.write(
                json.dumps({"id": str(number), "post": f"Post {number} tells " + "of one thing or another " * 8}) + "\n"
            )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    seconds, megabytes, size, count = map(float, done.stdout.split())
    assert count == 1_000_000 and seconds < 2 and megabytes < 300 and size < 1_000_000, done.stdout


def test_local_text_files_are_read_without_the_data_libraries(posts):
    code = (
        "import sys; from collm.envs.data import load_tasks; "
        f"load_tasks({str(posts)!r}, text_fields=['post']); "
        "assert not {'datasets', 'pyarrow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
