"""The cache of compiled kernels: only the user's own files are loaded."""

import os
import shutil
import subprocess

import pytest

from collm.agents.decoding.cpu import kernels

pytestmark = pytest.mark.skipif(kernels.compiler() is None, reason="this machine has no C++ compiler")
HEADS = 32, 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A new cache folder with one compiled kernel, which is not loaded: a library is loaded once per path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = os.umask(0o000)
    try:
        kernels._compiled(kernels.compiler(), *HEADS)
    finally:
        os.umask(before)
    return kernels.cache_folder()


def planted(folder, mark) -> None:
    """Put a library in the kernel's place that writes a mark when it is loaded."""
    source = folder.parent / "evil.cpp"
    source.write_text(
        "#include <cstdio>\n"
        f'__attribute__((constructor)) static void run() {{ std::fclose(std::fopen("{mark}", "w")); }}\n'
    )
    (kept,) = folder.glob("*.so")
    made = source.with_suffix(".so")
    subprocess.run([kernels.compiler(), "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    kept.unlink()
    shutil.move(made, kept)


def test_a_kept_kernel_is_the_users_alone_and_not_compiled_again(folder):
    (kept,) = folder.glob("kernels_32_3_*.so")
    assert folder.stat().st_mode & 0o777 == 0o700 and kept.stat().st_mode & 0o022 == 0
    before = kept.stat().st_mtime_ns
    assert kernels.kernels(*HEADS) is not None
    assert kept.stat().st_mtime_ns == before


def given_away(path):
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345)


def linked(path):
    path.symlink_to(path.rename(path.parent.parent / "elsewhere.so"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        *((lambda folder, mode=mode: folder.chmod(mode), "chmod 700") for mode in (0o770, 0o702, 0o777)),
        (given_away, "belongs to another user"),
    ],
)
def test_a_folder_of_another_user_or_that_others_can_write_to_is_not_used(folder, tmp_path, change, told):
    planted(folder, tmp_path / "PWNED")
    change(folder)
    with pytest.warns(RuntimeWarning, match=told):
        assert kernels.kernels(*HEADS) is None
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("change", [lambda file: file.chmod(0o720), lambda file: file.chmod(0o702), linked, given_away])
def test_a_file_of_another_user_or_that_others_can_write_to_or_a_link_is_compiled_again(folder, tmp_path, change):
    planted(folder, tmp_path / "PWNED")
    (kept,) = folder.glob("*.so")
    change(kept)
    assert kernels.kernels(*HEADS) is not None  # without a warning
    assert not (tmp_path / "PWNED").exists() and not kept.is_symlink()
