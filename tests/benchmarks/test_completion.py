"""What a shell is told about the words that can come next."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from collm.benchmarks.cli import COMMANDS, main


@pytest.fixture
def words(capsys):
    def ask(*typed):
        assert main(["completion", "words", "--", *typed]) == 0
        return capsys.readouterr().out.split()

    return ask


def test_commands_algorithms_options_and_values_are_completed(words):
    assert set(words("")) == {*COMMANDS, "--help", "--version"}
    assert words("ev") == ["evaluate"]
    assert words("train", "map") == ["mappo"]
    assert set(words("train", "mappo", "--critic-l")) == {"--critic-l2", "--critic-lora-rank", "--critic-learning-rate"}
    assert words("train", "mareinforce", "--critic-l") == []
    learn = {"--learns-filtered", "--learning-rate-schedule", "--learning-rate"}
    assert set(words("train", "iac", "--learn")) == learn
    assert words("train", "iac", "--weights", "") == ["own", "shared", "adapters"]
    assert words("train", "iac", "--env", "collm/MiniB") == ["collm/MiniBuild-v0"]
    assert words("play", "collm/MiniW") == ["collm/MiniWriting-v2"]
    assert words("evaluate", "--played", "g") == ["greedy"]
    assert words("train", "iac", "--out", "") == [], "a file is as good"
    assert words("completion", "") == ["bash", "zsh", "fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_one_that_it_reads(shell, capsys, tmp_path):
    assert main(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    assert subprocess.run([shell, "-n", str(script)], capture_output=True).stderr == b""


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_names_the_shells(option, capsys):
    assert main(["completion", option]) == 0
    assert "bash|zsh|fish" in capsys.readouterr().out


def test_bash_asks_with_the_words_typed_so_far(capsys, tmp_path):
    assert main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    fake = tmp_path / "collm"
    fake.write_text('#!/bin/bash\nshift 3\nprintf "%s\\n" "[$*]" ids\n')
    fake.chmod(0o755)
    asked = script + '\nCOMP_WORDS=(collm train iac --env coll); COMP_CWORD=4; _collm; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", asked], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True
    )
    assert done.stdout.splitlines() == ["[train iac --env coll]", "ids"], done.stderr
