"""Run examples/notebook.ipynb and save the outputs of its cells, so that they can be read without running it.

    python tools/notebook.py           # run it, and write it with its outputs

tests/examples/test_notebook.py runs it the same way and compares the outputs with the saved ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples/notebook.ipynb"
MOST_S = 120  #: of wall time, for one cell
JUPYTER = ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR")


class Manager(KernelManager):
    """A kernel of this interpreter, whatever kernels the machine knows by name."""

    @property
    def kernel_spec(self) -> KernelSpec:
        arguments = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=arguments, display_name="Python 3", language="python")


def environment(folder: Path) -> dict[str, str]:
    """Variables with which a kernel runs this checkout and writes nothing outside ``folder``."""
    return {"PYTHONPATH": str(ROOT), **{name: str(folder / name) for name in JUPYTER}}


def run(folder: Path) -> Any:
    """The notebook after a run in ``folder``: the ``nbformat`` node, each cell with its outputs."""
    book = nbformat.read(NOTEBOOK, as_version=4)
    where = {"metadata": {"path": str(folder)}}
    client = NotebookClient(book, kernel_manager_class=Manager, timeout=MOST_S, resources=where, record_timing=False)
    client.execute()
    return book


def without_vectors(book: Any) -> None:
    """Keep pictures as PNG alone: the SVG is ten times as long, and viewers of notebooks prefer the PNG."""
    for cell in book.cells:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop("image/svg+xml", None)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(environment(Path(folder)))
        book = run(Path(folder))
    without_vectors(book)
    book.metadata["language_info"] = {"name": "python"}  # a kernel adds its version
    nbformat.write(book, NOTEBOOK)


if __name__ == "__main__":
    main()
