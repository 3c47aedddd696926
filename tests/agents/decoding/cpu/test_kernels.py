"""The cache of compiled kernels: only the user's own files are loaded."""

import os
import shutil
import subprocess
import warnings

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


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_not_used(folder, tmp_path, mode):
    planted(folder, tmp_path / "PWNED")
    folder.chmod(mode)
    with pytest.warns(RuntimeWarning, match="chmod 700"):
        assert kernels.kernels(*HEADS) is None
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_file_that_others_can_write_to_is_compiled_again(folder, tmp_path, mode):
    planted(folder, tmp_path / "PWNED")
    (kept,) = folder.glob("*.so")
    kept.chmod(mode)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernels.kernels(*HEADS) is not None
    assert not (tmp_path / "PWNED").exists()


def test_a_link_to_somewhere_else_is_compiled_again(folder, tmp_path):
    planted(folder, tmp_path / "PWNED")
    (kept,) = folder.glob("*.so")
    kept.rename(tmp_path / "elsewhere.so")
    kept.symlink_to(tmp_path / "elsewhere.so")
    assert kernels.kernels(*HEADS) is not None
    assert not (tmp_path / "PWNED").exists() and not kept.is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_files_of_another_user_are_not_loaded(folder, tmp_path):
    planted(folder, tmp_path / "PWNED")
    (kept,) = folder.glob("*.so")
    os.chown(kept, 12345, 12345)
    assert kernels.kernels(*HEADS) is not None
    kernels.kernels.cache_clear()
    os.chown(folder, 12345, 12345)
    with pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert kernels.kernels(*HEADS) is None
    assert not (tmp_path / "PWNED").exists()
