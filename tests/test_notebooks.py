"""Notebooks start in Colab, show the outputs of one run, and run."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import pytest
from fakes import byte_tokenizer, random_llama

import collm
from collm.benchmarks.cli import main

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
FOR_GPUS = ROOT / "docs" / "learn" / "real_model_gpu.ipynb"  # has no outputs
MAX_KB = 100
COLAB = "https://colab.research.google.com/github/OWNER/collm/blob/main"
INSTALL = '%pip install -q "collm[train] @ git+https://github.com/OWNER/collm"'
SMALL = " --max-new-tokens 8 --num-updates 1 --rollout-buffer-size 2 --eval-num-samples 2 --compute-dtype float32"

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
with_outputs = pytest.mark.parametrize(
    "path", [path for path in NOTEBOOKS if path != FOR_GPUS], ids=lambda path: path.name
)


def cells(path: Path) -> list[dict]:
    """Return the code cells without the first cell, which installs collm."""
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"][1:]


@every_notebook
def test_a_notebook_has_a_link_to_colab_and_installs_collm(path):
    assert len(NOTEBOOKS) == 3
    title, install, *_ = json.loads(path.read_text())["cells"]
    assert f"]({COLAB}/{path.relative_to(ROOT)})" in "".join(title["source"])
    assert install["source"] == [INSTALL] and install["metadata"]["tags"] == ["skip-execution"]  # a tag of nbclient
    assert path.stat().st_size < MAX_KB * 1024


@with_outputs
def test_a_notebook_shows_the_outputs_of_one_whole_run(path):
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == [*range(1, len(found) + 1)]
    outputs = [output for cell in found for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert str(ROOT) not in path.read_text() and "/tmp/" not in path.read_text()


@pytest.mark.slow
@with_outputs
def test_a_notebook_runs_from_its_first_cell_to_its_last(path, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (extra: docs)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (extra: docs)")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (extra: docs)")
    notebook = nbformat.read(path, 4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=place).execute()
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"][-1] == len(cells(path))


@pytest.mark.slow
def test_the_notebook_for_a_gpu_runs_with_a_small_model(tmp_path, monkeypatch, capsys):
    """The options of the notebook are parsed. `SMALL` then repeats some options with smaller values."""
    monkeypatch.chdir(tmp_path)
    model = random_llama()
    model.config.max_position_embeddings = 8192
    model.save_pretrained("model")
    byte_tokenizer().save_pretrained("model")
    monkeypatch.setattr(collm, "load_team", partial(collm.load_team, trust=True))  # the model is a folder
    variables: dict = {}
    commands = []
    for cell in cells(FOR_GPUS):
        code = "".join(cell["source"])
        if code.startswith("!collm "):
            commands.append(code.split()[1])
            assert main(shlex.split(code.removeprefix("!collm ").format(**variables))) == 0
            continue
        code, num_changed = re.subn('(?m)^MODEL = ".*"$', 'MODEL = "model"', code)
        exec(compile(code, FOR_GPUS.name, "exec"), variables)
        if num_changed:
            assert main(["doctor", "--memory", "80GB", *shlex.split(f"train maac {variables['OPTIONS']}")]) == 0
            variables["OPTIONS"] += SMALL
    assert commands == ["doctor", "train"]
    assert {path.name for path in Path("models", "gpu").iterdir()} == {"builder_0", "builder_1"}
    assert "return on held-out tasks" in capsys.readouterr().out
