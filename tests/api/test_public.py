"""`flashfs.NAME`: the names that are for use, what they give, and FTLs that are given as classes."""

from __future__ import annotations

import inspect
import os
import pydoc
import re
import shutil
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import indent
from threading import Lock
from typing import Any

import polars as pl
import pytest
from notebook_ftl import Plain

import flashfs
import nandimg
from flashfs.cli import create as create_command
from flashfs.cli import mount as mount_command
from flashfs.cli import run
from flashfs.errors import BindError, UntrustedError
from flashfs.ftl import class_names
from flashfs.fuse import mounts
from flashfs.poll import readable
from flashfs.replay import plots
from nandimg._torn import spoil

ROOT = Path(__file__).parents[2]
WORK = "uniform:ops=2k,write=0.5"
mounting = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK) or shutil.which("fusermount3") is None,
    reason="needs /dev/fuse and fusermount3",
)


def in_this_notebook(source: str, name: str, monkeypatch: pytest.MonkeyPatch) -> type:
    """A class as a notebook has it: of ``__main__``, and in no file."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(source, space)
    monkeypatch.setitem(class_names.CLASSES, "of this test", object)  # what the test gives is forgotten after it
    return space[name]  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def nothing_stays_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_names, "CLASSES", class_names.CLASSES.copy())
    monkeypatch.setattr("flashfs.ftl.python.CLASSES", class_names.CLASSES)


def figures(table: pl.DataFrame) -> pl.DataFrame:
    return table.drop("wall_s", "pages_per_s")


# --- names


def test_the_names_are_listed_and_documented() -> None:
    names = [*flashfs.__all__, "open"]  # which `from flashfs import *` leaves alone
    assert "open" not in flashfs.__all__
    assert set(names) <= set(dir(flashfs))
    assert not [name for name in dir(flashfs) if name not in names and not name.startswith("__")]
    page = (ROOT / "docs/python-api.md").read_text()
    for name in names:
        assert inspect.getdoc(getattr(flashfs, name)), name
        assert f"`{name}" in page, name
    shown = pydoc.render_doc(flashfs, renderer=pydoc.plaintext)
    first = shown[: shown.index("PACKAGE CONTENTS")]
    assert all(name in first for name in names)


def test_importing_it_imports_nothing_else() -> None:
    script = "import sys, flashfs; print(sorted(one for one in sys.modules if one.startswith(('flashfs.', 'nandimg'))))"
    done = subprocess.run([sys.executable, "-c", script], check=True, text=True, stdout=subprocess.PIPE, cwd=ROOT)
    assert done.stdout == "[]\n"


def test_keywords_are_the_flags() -> None:
    of_command = set(inspect.signature(create_command.command).parameters) - {"image", "as_json"}
    assert set(inspect.signature(flashfs.create).parameters) - {"path"} == of_command
    ours = {"as_json", "verbose", "foreground", "context", "remount"}  # a command line is not a call
    of_command = set(inspect.signature(mount_command.command).parameters) - ours
    assert set(inspect.signature(flashfs.mount).parameters) == of_command


# --- images and mounts


def test_create_and_open(tmp_path: Path) -> None:
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    assert path == tmp_path / "chip"
    with flashfs.open(path, ftl="slimftl", opt={"buffer": 8}, dram="2M") as ssd:
        assert isinstance(ssd, flashfs.Device)
        ssd.write(5000, b"hello")
        assert ssd.options["buffer"] == 8
    with flashfs.open(path, readonly=True) as ssd:
        assert ssd.recovery.clean
        assert ssd.read(5000, 5) == b"hello"
    assert run(["create", str(tmp_path / "other"), "--size", "96M", "--dies", "2", "--op", "0.2"]) == 0
    flashfs.create(tmp_path / "same", size="96M", dies=2, op=0.2)
    assert nandimg.inspect(tmp_path / "same").geometry == nandimg.inspect(tmp_path / "other").geometry
    with pytest.raises(nandimg.ImageError, match="exists already"):
        flashfs.create(path)
    with pytest.raises(flashfs.UsageError, match="size = '4q'"):
        flashfs.create(tmp_path / "none", size="4q")
    with pytest.raises(flashfs.UsageError, match="dram = 'much'"):
        flashfs.open(path, dram="much")


def test_a_copy_what_is_in_it_and_what_is_broken(tmp_path: Path) -> None:
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    with flashfs.open(path, ftl="slimftl") as ssd:
        ssd.write(0, b"hello")
    copy = flashfs.clone(path, tmp_path / "copy")
    assert flashfs.dump(copy)["ftl"] == "slimftl"
    assert flashfs.dump(copy)["uuid"] != flashfs.dump(path)["uuid"]
    ppa = flashfs.dump(copy, "lpa", 0)["ppa"]
    assert len(flashfs.dump(copy, "blocks")) == nandimg.inspect(copy).geometry.blocks
    assert flashfs.fsck(copy, data=True) == []
    image = nandimg.open_image(copy)
    spoil(image.chip, *divmod(ppa, nandimg.inspect(copy).geometry.pages_per_block))
    image.close()
    assert any("LPA 0" in line or f"PPA {ppa}" in line for line in flashfs.fsck(copy, data=True))
    with pytest.raises(flashfs.UsageError, match="nonesuch"):
        flashfs.dump(copy, "nonesuch")
    with pytest.raises(nandimg.ImageError, match="exists"):
        flashfs.clone(path, copy)


def test_checks_and_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = in_this_notebook((ROOT / "tests/api/notebook_ftl.py").read_text(), "Plain", monkeypatch)
    found = flashfs.check(["pagemap", mine], only=["names"])
    assert found.select("ftl", "id", "result").rows() == [
        ("pagemap", "names", "pass"), ("__main__:Plain", "names", "pass")]  # fmt: skip
    cuts = flashfs.crash("leaftl", tier="random", cuts=40, seed=3)
    assert cuts.select("ftl", "tier", "seed", "failed").row(0) == ("leaftl", "random", 3, 0)
    assert cuts["cuts"][0] >= 40
    assert cuts["failures"].to_list() == [[]]
    with pytest.raises(flashfs.UsageError, match="tier 'nonesuch': use sweep"):
        flashfs.crash("leaftl", tier="nonesuch")
    with pytest.raises(flashfs.UsageError, match="nonesuch"):
        flashfs.check("nonesuch")


@pytest.mark.mount
@mounting
def test_a_mount_ends_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    mine = in_this_notebook((ROOT / "tests/api/notebook_ftl.py").read_text(), "Plain", monkeypatch)
    with flashfs.mount(path, ftl=mine, opt={"buffer": 8}) as ssd:
        assert (ssd.ftl, ssd.size, ssd.disk.stat().st_size) == ("__main__:Plain", 64 << 20, 64 << 20)
        with ssd.disk.open("r+b") as disk:
            disk.write(b"hello")
        assert ssd.config()["options"]["buffer"] == 8
        assert ssd.stats()["ftl"] == ssd.ftl
        assert "grown_bad" in ssd.smart()
    assert not ssd.mountpoint.exists()
    with flashfs.open(path, ftl=mine) as device:
        assert device.recovery.clean
        assert device.read(0, 5) == b"hello"
    with pytest.raises(flashfs.FlashfsError, match="its header names __main__:Plain"):
        flashfs.mount(path, tmp_path / "mnt")
    assert mounts.at(tmp_path / "mnt") is None


@pytest.mark.mount
@mounting
def test_what_a_module_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (ROOT / "tests/api/notebook_ftl.py").read_text()
    (tmp_path / "loud_ftl.py").write_text(source + '\nprint("imported")\n')
    monkeypatch.syspath_prepend(tmp_path)
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    with flashfs.mount(path, ftl=import_module("loud_ftl").Plain) as ssd:
        assert ssd.ftl == "loud_ftl:Plain"
    assert mounts.at(ssd.mountpoint) is None


@pytest.mark.mount
@mounting
def test_a_mount_whose_daemon_is_killed(tmp_path: Path) -> None:
    path = flashfs.create(tmp_path / "chip", preset="small-64m")

    def killed(ssd: flashfs.Mount) -> None:
        daemon = os.pidfd_open(ssd.pid)
        os.kill(ssd.pid, signal.SIGKILL)
        assert readable(daemon, timeout_s=120)
        os.close(daemon)

    with pytest.raises(flashfs.FlashfsError, match="nothing was checkpointed"), flashfs.mount(path) as ssd:
        killed(ssd)
    warned = pytest.warns(UserWarning, match="nothing was checkpointed")
    with warned, pytest.raises(ZeroDivisionError), flashfs.mount(path, tmp_path / "mnt") as ssd:
        killed(ssd)
        raise ZeroDivisionError
    assert mounts.at(tmp_path / "mnt") is None
    ssd.unmount()


# --- classes


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_class_of_a_notebook(jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = in_this_notebook((ROOT / "tests/api/notebook_ftl.py").read_text(), "Plain", monkeypatch)
    asked: dict[str, Any] = {"preset": "small-64m", "opt": {"verify": 0}, "jobs": jobs}
    table = flashfs.replay(WORK, ftl=[mine, "pagemap"], **asked)
    assert table["ftl"].to_list() == ["__main__:Plain", "pagemap"]
    assert table["nand.program"][0] == table["nand.program"][1]
    alone = flashfs.replay(WORK, ftl=mine, **{**asked, "opt": {mine: {"buffer": [0, 8]}}})
    assert alone["config.options.buffer"].to_list() == [0, 8]


def test_the_newest_of_a_name_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is run again makes another class; so does one of the same name in a worker that is still there."""
    source = (ROOT / "tests/api/notebook_ftl.py").read_text()
    table = source + "    def dram(self):\n        return {'table': SIZE}\n"
    kept = tmp_path / "prepared"
    found = []
    for size in (100, 200):
        mine = in_this_notebook(table.replace("SIZE", str(size)), "Plain", monkeypatch)
        monkeypatch.setattr(class_names, "code", lambda name, size=size: bytes([size]))  # its source cannot be found
        asked: dict[str, Any] = {"source": "uniform:ops=100", "preset": "small-64m", "ftl": mine}
        found.append(flashfs.replay(**asked)["dram.table"][0])
        found.append(flashfs.sweep(asked, tmp_path / "sweep", jobs=1)["dram.table"][0])
        flashfs.replay(**asked, precondition="fill", prepared=str(kept))
    assert found == [100, 100, 200, 200]
    assert len(list(kept.glob("*.nand"))) == 2


def test_a_class_that_can_be_imported() -> None:
    name = f"{Plain.__module__}:Plain"
    assert flashfs.Device.memory(nandimg.PRESETS["small-64m"].geometry, Plain, backend="meta").ftl == name
    assert class_names.code(name) == Path(__file__).with_name("notebook_ftl.py").read_bytes()
    assert flashfs.replay("uniform:ops=100", ftl=Plain, preset="small-64m", jobs=2)["ftl"].to_list() == [name]


def test_a_name_that_does_not_fit_a_header(tmp_path: Path) -> None:
    class ARatherLongNameOfAClass(Plain):
        """Within a function, too."""

    geometry = nandimg.PRESETS["small-64m"].geometry
    assert flashfs.Device.memory(geometry, ARatherLongNameOfAClass, backend="meta").ftl == ":ARatherLongNameOfAClass"
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    with pytest.raises(flashfs.UsageError, match="bytes, and the header of an image has 28"):
        flashfs.open(path, ftl=ARatherLongNameOfAClass)
    assert nandimg.inspect(path).ftl == ""


def test_what_is_no_ftl(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(flashfs.UsageError, match="the class lacks lookup, bind, unbind"):
        flashfs.replay(WORK, ftl=Path)
    with pytest.raises(flashfs.UsageError, match="ftl = 7: use the name of an FTL, or a class"):
        flashfs.replay(WORK, ftl=7)  # type: ignore[operator]
    with pytest.raises(flashfs.UsageError, match="it is there twice"):
        flashfs.replay(WORK, ftl=[Plain, Plain])
    sealed = in_this_notebook((ROOT / "tests/api/notebook_ftl.py").read_text(), "Plain", monkeypatch)
    sealed.lock = Lock()  # type: ignore[attr-defined]
    with pytest.raises(flashfs.UsageError, match="cannot be sent to another process"):
        flashfs.replay(WORK, ftl=sealed, preset="small-64m", jobs=2)


def test_an_image_does_not_choose_a_class_that_was_given(tmp_path: Path) -> None:
    path = flashfs.create(tmp_path / "chip", preset="small-64m")
    with flashfs.open(path, ftl=Plain):
        pass
    with pytest.raises(UntrustedError):
        flashfs.open(path)
    with flashfs.open(path, ftl=Plain) as ssd:
        assert ssd.ftl == "notebook_ftl:Plain"
    with pytest.raises(BindError, match="bound to notebook_ftl:Plain for life, not pagemap"):
        flashfs.open(path, ftl="pagemap")


# --- tables, pictures, traces


def test_compare() -> None:
    asked: dict[str, Any] = {"preset": "small-64m", "precondition": "fill", "dram": ["2M", "4M"]}
    short = flashfs.compare(WORK, ["pagemap", "slimftl"], **asked)
    assert short.columns == [
        "ftl", "source", "dram", "waf", "programs", "reads", "erases", "moved_pages", "map_bytes", "dram_bytes",
        "hit_ratio", "read_p99_us", "write_p99_us", "iops",
    ]  # fmt: skip
    full = flashfs.compare(WORK, ["pagemap", "slimftl"], full=True, **asked)
    assert figures(full).equals(figures(flashfs.replay(WORK, ftl=["pagemap", "slimftl"], **asked)))
    assert flashfs.compare(full).equals(short)
    for name, column in (("waf", "waf"), ("programs", "nand.program"), ("write_p99_us", "latency_us.write.p99")):
        assert short[name].equals(full[column])
    with pytest.raises(flashfs.UsageError, match="leave ftl"):
        flashfs.compare(full, "pagemap")
    with pytest.raises(flashfs.UsageError, match="without the columns ftl and source"):
        flashfs.compare(pl.DataFrame({"a": [1]}))


def test_pictures_show_themselves(tmp_path: Path) -> None:
    table = flashfs.replay(WORK, ftl=["pagemap", "slimftl"], preset="small-64m", out=tmp_path / "r.parquet")
    picture = flashfs.plot(table, "waf", out=tmp_path / "waf.svg")
    assert isinstance(picture, flashfs.Picture)
    assert picture._repr_svg_().startswith("<?xml")
    assert picture._repr_svg_() == (tmp_path / "waf.svg").read_text()
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert "pagemap, slimftl" in repr(picture)
    plots.draw(plots.figure(table, "waf"), tmp_path / "same.svg")
    assert (tmp_path / "same.svg").read_bytes() == (tmp_path / "waf.svg").read_bytes()
    wide = flashfs.plot(tmp_path / "r.parquet", "waf", width=6)
    assert 'width="432pt"' in wide._repr_svg_()
    assert wide.panels == picture.panels
    with pytest.raises(flashfs.UsageError, match=r"what: use mapping, .*"):
        flashfs.plot(table)
    with pytest.raises(flashfs.UsageError, match="a name that ends in"):
        picture.save(tmp_path / "waf.xls")


def test_read_trace(tmp_path: Path) -> None:
    path = ROOT / "tests/replay/data/msr.csv"
    table = flashfs.read_trace(path, first=3)
    assert table.rows() == [(0, "write", 0, 4096), (1_000_000, "write", 4096, 16384), (2_000_000, "read", 8192, 4096)]
    assert table.columns == ["time_ns", "op", "offset", "length"]
    made = flashfs.read_trace("wal:ops=2k", size="64M")
    assert made.select(pl.col("offset") + pl.col("length")).max().item() <= 64 << 20
    assert 0 < made["from_offset"].len() - made["from_offset"].null_count() == len(made.filter(pl.col("op") == "remap"))
    back = tmp_path / "back.csv"
    back.write_text("time_us,op,offset_bytes,size_bytes\n2,R,0,512\n1,R,512,512\n")
    assert flashfs.read_trace(back, sort=True)["offset"].to_list() == [512, 0]
    with pytest.raises(flashfs.UsageError, match="no such file; workloads are"):
        flashfs.read_trace("nonesuch.csv")
    with pytest.raises(flashfs.UsageError, match="only a replay finds that factor"):
        flashfs.read_trace(path, speedup="auto")


@pytest.mark.mount
@mounting
def test_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python-api.md").read_text(), re.M | re.S)
    (tmp_path / "page.py").write_text(f"if __name__ == '__main__':\n{indent(''.join(blocks), '    ')}")
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("b'hello' ")
    assert "__main__:Mine" in done.stdout
    assert (tmp_path / "waf.svg").exists()
