import errno

import pytest

from collm._ownership import (
    MARKER,
    ForeignFileError,
    holds_run,
    new_folder,
    note,
    owned,
    refuse_full_folder,
    write_text,
    written,
)
from collm._ownership import refuse_foreign_folder as refuse_folder
from collm.algorithms.runs.files import only_one


def test_a_file_of_collm_s_is_overwritten_and_one_of_others_is_refused(tmp_path):
    write_text(tmp_path / "new", "page.md", "1")
    write_text(tmp_path / "new", "page.md", "2")
    assert (tmp_path / "new" / "page.md").read_text() == "2"
    (tmp_path / "new" / "notes.md").write_text("mine")
    with pytest.raises(ForeignFileError, match=r"notes\.md"):
        write_text(tmp_path / "new", "notes.md", "3")
    assert (tmp_path / "new" / "notes.md").read_text() == "mine"
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == [MARKER, "notes.md", "page.md"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    write_text(tmp_path, "figures/a.png", "old")
    with pytest.raises(RuntimeError), owned(tmp_path, "figures/a.png") as new:
        new.write_text("half")
        raise RuntimeError
    assert [path.name for path in (tmp_path / "figures").iterdir()] == ["a.png"]
    assert (tmp_path / "figures" / "a.png").read_text() == "old"


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    target, page = tmp_path / "target", tmp_path / "a" / "page.md"
    target.write_text("mine")
    write_text(tmp_path / "a", "page.md", "1")
    page.unlink()
    page.symlink_to(target)
    (tmp_path / "a" / ".collm-new-page.md").symlink_to(target)
    write_text(tmp_path / "a", "page.md", "2")
    assert target.read_text() == "mine" and page.read_text() == "2" and not page.is_symlink()


def test_a_folder_that_is_a_link_is_not_written_through_but_one_above_may_be_one(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path / "elsewhere")
    write_text(tmp_path / "linked", "a/page.md", "1")
    assert (tmp_path / "elsewhere" / "a" / "page.md").read_text() == "1"
    (tmp_path / "elsewhere" / "b").symlink_to(tmp_path)
    with pytest.raises(ForeignFileError, match=r"linked/b .*link"):
        write_text(tmp_path / "linked", "b/page.md", "1")
    assert not (tmp_path / "page.md").exists()


def test_a_run_that_failed_before_it_wrote_its_settings_is_a_run(tmp_path):
    with only_one(tmp_path):
        (tmp_path / "failure.txt").touch()
    assert holds_run(tmp_path)
    refuse_folder(tmp_path)


@pytest.mark.parametrize("content", ['{"mine": 1}', "[1]", "not JSON", "", "[" * 100_000, "\udcff"])
def test_a_config_json_of_others_makes_no_run(tmp_path, content):
    (tmp_path / "config.json").write_text(content, errors="surrogateescape")
    assert not holds_run(tmp_path)
    with pytest.raises(ForeignFileError, match=r"config\.json"):
        refuse_folder(tmp_path)


def test_a_folder_is_free_for_a_run_if_it_is_missing_empty_or_a_run_s(tmp_path):
    refuse_folder(tmp_path / "missing")
    refuse_folder(tmp_path)
    (tmp_path / MARKER).touch()  # of a process that was killed before it wrote the first line
    refuse_folder(tmp_path)
    note(tmp_path, ["config.json"])
    (tmp_path / "metrics.jsonl").touch()
    refuse_folder(tmp_path)
    write_text(tmp_path / "report", "tables.md", "1")
    with pytest.raises(ForeignFileError, match=r"tables\.md"):
        refuse_folder(tmp_path / "report")


def test_a_list_that_is_cut_off_is_read_and_goes_on(tmp_path):
    note(tmp_path, ["a", "b"])
    whole = (tmp_path / MARKER).read_bytes()
    for end in range(len(whole)):
        (tmp_path / MARKER).write_bytes(whole[:end])
        known = written(tmp_path)
        assert known <= {"a", "b"}
        note(tmp_path, ["c"])
        assert written(tmp_path) >= known | {"c"}


@pytest.mark.parametrize("kind", ["text", "newer", "folder", "link"])
def test_a_dot_collm_that_is_no_list_is_refused(tmp_path, kind):
    marker = tmp_path / MARKER
    if kind == "folder":
        marker.mkdir()
    elif kind == "link":
        marker.symlink_to(tmp_path / "target")
    else:
        marker.write_text("collm files, format 2\n" if kind == "newer" else "mine\n")
    with pytest.raises(ForeignFileError, match=MARKER):
        write_text(tmp_path, "page.md", "1")
    assert not (tmp_path / "page.md").exists() and not (tmp_path / "target").exists()


def test_only_new_and_empty_folders_pass_the_check_for_full_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new"):
        refuse_full_folder(tmp_path / name)
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for path in (tmp_path, tmp_path / "file", tmp_path / "dangling"):
        with pytest.raises(ForeignFileError, match="not an empty folder"):
            refuse_full_folder(path)
    write_text(tmp_path / "run", "config.json", "{}")
    with pytest.raises(ForeignFileError, match="is inside the run"):
        refuse_full_folder(tmp_path / "run" / "agents" / "copy")


@pytest.mark.parametrize("is_there", [False, True])
def test_a_new_folder_is_there_in_whole_or_not_at_all(tmp_path, is_there):
    folder = tmp_path / "a" / "out"
    if is_there:  # perhaps a mount point
        folder.mkdir(parents=True)
    for number in range(2):  # the second time, the files of a killed process are there
        with pytest.raises(OSError, match="No space"), new_folder(folder) as new:
            (new / "b").mkdir()
            (new / "b" / "half").write_text("1")
            raise OSError(errno.ENOSPC, "No space left on device")
        assert not list(folder.iterdir() if is_there else tmp_path.glob("a/*"))
        if number == 0:
            (new / "c" / "old").mkdir(parents=True)
    with new_folder(folder) as new:
        (new / "b").mkdir()
        (new / "b" / "whole").write_text("1")
    assert [str(path.relative_to(tmp_path / "a")) for path in sorted(tmp_path.rglob("*"))[1:]] == [
        *("out", "out/b", "out/b/whole")
    ]
    with pytest.raises(ForeignFileError, match="out exists"), new_folder(folder):
        pass


def test_an_error_of_a_full_disk_names_the_file(tmp_path):
    with pytest.raises(OSError, match=r"page\.md"), owned(tmp_path, "page.md"):
        raise OSError(errno.ENOSPC, "No space left on device")
