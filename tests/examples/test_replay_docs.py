"""What docs/replay.md shows from Python is the example that is there; it runs, and prints such a table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from flashfs.replay import sweep

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "replay.md").read_text()
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
NUMBER = re.compile(r"\d+(\.\d+)?")


def shape(text: str) -> str:
    """Every number 0, every gap one space."""
    return re.sub(" +", " ", NUMBER.sub("0", text))


def test_the_notebook(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Numbers change when the engine does: the table has to have one wherever the page has one."""
    (_, name, code), (_, _, printed) = BLOCK.findall(PAGE)
    assert (ROOT / name).read_text() == code
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / name))
    assert shape(capsys.readouterr().out) == shape(printed)
    assert (tmp_path / "hits.svg").stat().st_size > 1000
    assert (tmp_path / "waf.pdf").read_bytes().startswith(b"%PDF-")


def test_the_sweep_can_be_read(tmp_path: Path) -> None:
    found = re.search(r"^    # ablation\.toml\n(.*?)\n\n(?! )", PAGE, re.M | re.S)
    assert found is not None
    text = re.sub("^    ", "", found[1], flags=re.M)
    (tmp_path / "traces").mkdir()
    trace = (ROOT / "tests" / "replay" / "data" / "msr.csv").read_bytes()
    (tmp_path / "traces" / "web.csv.zst").write_bytes(trace)
    (tmp_path / "ablation.toml").write_text(text)
    setups = sweep.load(tmp_path / "ablation.toml")
    of_each_source = 4 * (2 * 1 + 2 * 3)  # DRAM sizes x (buffers of pagemap + buffers x shifts of slimftl)
    assert len(setups) == (3 + 1) * of_each_source  # three seeds of the workload, one trace
