"""examples/notebook.ipynb runs from its first cell to its last, and shows what it is for; it is kept without output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/notebook.ipynb"
MOST_S = 120


class Manager(KernelManager):
    """A kernel of this interpreter, whatever kernels the machine knows by name."""

    @property
    def kernel_spec(self) -> KernelSpec:
        arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=arguments, display_name="Python 3", language="python")


def shown(cell: Any) -> list[str]:
    return [kind for output in cell.outputs for kind in output.get("data", {})]


@pytest.mark.filterwarnings("default")  # of the libraries around a kernel, which are not ours to mend
def test_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    book = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(book, kernel_manager_class=Manager, timeout=MOST_S, resources=where).execute()
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [kind for cell in code for kind in shown(cell)].count("image/svg+xml") == 2
    outputs = [output for cell in code for output in cell.outputs]
    assert not [output for output in outputs if output.output_type in ("error", "stream")]
    tables = [output["data"]["text/plain"] for output in outputs if "text/html" in output["data"]]
    assert len(tables) == 3
    assert "slimftl" in tables[0]
    assert "__main__:" in tables[1]
    assert "superseded" in tables[2]


def test_it_is_kept_without_output() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    assert not [cell for cell in book.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]
