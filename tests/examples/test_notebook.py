"""examples/notebook.ipynb runs from its first cell to its last, and shows what is kept in it."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import notebook  # noqa: E402


def code_of(book: Any) -> list[Any]:
    return [cell for cell in book.cells if cell.cell_type == "code"]


def outputs_of(book: Any) -> list[Any]:
    return [output for cell in code_of(book) for output in cell.outputs]


def kinds(book: Any) -> list[str]:
    return [kind for output in outputs_of(book) for kind in output.get("data", {})]


def tables(book: Any) -> list[str]:
    """What a reader sees of each table, with every number."""
    return [output["data"]["text/plain"] for output in outputs_of(book) if "text/html" in output["data"]]


@pytest.mark.filterwarnings("default")  # of the libraries around a kernel, which are not ours to mend
def test_it_shows_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in notebook.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    ran, kept = notebook.run(tmp_path), nbformat.read(notebook.NOTEBOOK, as_version=4)
    gc.collect()  # a kernel's stdin is left open; in another test its warning would be an error
    assert not [output for output in outputs_of(ran) if output.output_type in ("error", "stream")]
    assert kinds(ran).count("image/svg+xml") == 2
    assert kinds(kept).count("image/png") == 2
    assert len(tables(ran)) == 3
    assert tables(ran) == tables(kept), "run tools/notebook.py, and look at what changed"
    assert "slimftl" in tables(ran)[0]
    assert "__main__:" in tables(ran)[1]
    assert "superseded" in tables(ran)[2]


def test_all_of_it_was_run_in_order() -> None:
    book = nbformat.read(notebook.NOTEBOOK, as_version=4)
    assert [cell.execution_count for cell in code_of(book)] == list(range(1, len(code_of(book)) + 1))
