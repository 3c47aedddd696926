import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))
MAX_KB = 100

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def cells(path: Path) -> list[dict]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


@every_notebook
def test_a_notebook_shows_the_outputs_of_one_whole_run(path):
    assert len(NOTEBOOKS) == 2
    found = cells(path)
    assert [cell["execution_count"] for cell in found] == [*range(1, len(found) + 1)]
    outputs = [output for cell in found for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result", "display_data"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert path.stat().st_size < MAX_KB * 1024
    assert str(ROOT) not in path.read_text() and "/tmp/" not in path.read_text()


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_from_its_first_cell_to_its_last(path, tmp_path):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed (extra: docs)")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed (extra: docs)")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed (extra: docs)")
    notebook = nbformat.read(path, 4)
    place = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=place).execute()
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"][-1] == len(cells(path))
