"""`flashfs create` on small chips: what it makes can be mounted by every FTL, and what none could use is not made."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from flashfs import cli, fit
from flashfs.device import Device, refusal
from flashfs.errors import BindError
from flashfs.ftl import SCHEMES
from nandimg import Geometry, create, inspect

MIB = 1 << 20


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of one command line."""
    code = cli.run([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


@pytest.mark.parametrize("mib", [4, 64])
def test_every_ftl_runs_on_a_small_chip(capsys: pytest.CaptureFixture[str], tmp_path: Path, mib: int) -> None:
    """Bound, written twice over, and opened again: up to 64 MiB, no FTL could be bound to what create made."""
    path, block = tmp_path / "chip", os.urandom(MIB)
    for name in SCHEMES:
        code, out, _ = run(capsys, "create", path, "--size", f"{mib}M", "--force")
        assert code == 0
        assert "some FTLs have no room on it with 10%" in out
        device = Device.open(path, ftl=name)
        for offset in [*range(0, mib * MIB, MIB)] * 2:
            device.write(offset, block)
        device.close()
        device = Device.open(path)
        assert device.read((mib - 1) * MIB, MIB) == block
        assert device.problems() == []
        device.close()


@pytest.mark.parametrize("shape", [["--page-size", "16k"], ["--pages-per-block", "1024"], ["--dies", "4"], []])
def test_other_shapes(capsys: pytest.CaptureFixture[str], tmp_path: Path, shape: list[str]) -> None:
    code, out, _ = run(capsys, "create", tmp_path / "chip", "--size", "8M", *shape, "--json")
    made = json.loads(out)
    assert (code, made["refused_by"]) == (0, {})
    assert fit.refusals(inspect(tmp_path / "chip").geometry) == {}


def test_the_op_that_a_refusal_names_would_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "chip"
    code, out, err = run(capsys, "create", path, "--size", "16M", "--op", "0.1")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert not path.exists()
    found = re.search(r"use --op ([\d.]+) for slimftl, ([\d.]+) for all", err)
    assert found
    code, out, _ = run(capsys, "create", path, "--size", "16M", "--op", found[1])
    assert code == 0
    assert "cannot be used with pagemap, " in out  # slimftl needs least
    assert out.endswith(f"--op {found[2]} has room for all\n")
    with pytest.raises(BindError, match=r"^dftl: .*; use a chip made with --op [\d.]+$") as caught:
        Device.open(path, ftl="dftl")
    named = str(caught.value).split()[-1]
    assert run(capsys, "create", path, "--size", "16M", "--op", named, "--force")[0] == 0
    Device.open(path, ftl="dftl").close()
    code, out, _ = run(capsys, "create", path, "--size", "16M", "--op", found[2], "--force")
    assert code == 0
    assert "cannot be used" not in out


def test_what_more_blocks_do_not_mend_is_refused_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, "create", tmp_path / "chip", "--size", "16M", "--oob", 16)
    assert code == 1
    assert "20 bytes of OOB per page" in err
    assert not (tmp_path / "chip").exists()


@pytest.mark.parametrize("size", ["4M", "16M"])
def test_replays_on_small_chips(capsys: pytest.CaptureFixture[str], size: str) -> None:
    """The same chip as create makes."""
    code, out, err = run(capsys, "replay", "zipf:ops=2k,write=0.7", "--size", size, "--ftl", "pagemap,hpftl", "--json")
    assert code == 0, err
    assert len(json.loads(out)) == 2


def test_what_the_first_mount_allocates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It is reported before the wait: for a large chip, gibibytes of page records."""
    path = tmp_path / "chip"
    made = json.loads(run(capsys, "create", path, "--preset", "small-64m", "--json")[1])
    Device.open(path, ftl="slimftl").close()
    assert inspect(path).allocated_bytes - made["allocated_bytes"] == made["first_mount_bytes"]["slimftl"]
    code, out, _ = run(capsys, "create", path, "--preset", "leaftl-2t", "--force")
    assert code == 0
    assert re.search(r"^its first mount allocates 19\.2 GiB to 2\d(\.\d)? GiB more, by FTL$", out, re.M)


def test_growing_finds_the_smallest() -> None:
    base = Geometry.sized(8 * MIB, pages_per_block=64, dies=2)
    for name in ("pagemap", "muftl"):
        op = fit.enough_for(name, base)
        assert op is not None
        assert refusal(name, Geometry.sized(8 * MIB, op=op, pages_per_block=64, dies=2)) is None
        assert refusal(name, Geometry.sized(8 * MIB, op=op - 0.0625, pages_per_block=64, dies=2)) is not None


def test_a_meant_name(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    create(tmp_path / "chip", Geometry())
    for arguments, meant in (
        (["ftls", "slimtfl"], "slimftl"),
        (["create", "x", "--preset", "leaftl2t"], "leaftl-2t"),
        (["replay", "zipff:ops=2k"], "zipf"),
        (["replay", "zipf:opps=2k"], "ops"),
        (["replay", "zipf:ops=2k", "--ftl", "Pagemap"], "pagemap"),
        (["replay", "zipf:ops=2k", "--opt", "wear_spred=3"], "wear_spread"),
        (["replay", "zipf:ops=2k", "--opt", "wear=exakt"], "exact"),
        (["dump", tmp_path / "chip", "blocs"], "blocks"),
        (["recovery-model", "--capacity", "1T", "--ftl", "dfttl"], "dftl"),
    ):
        code, _, err = run(capsys, *arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert f" (did you mean {meant}?)" in err
    assert "did you mean" not in run(capsys, "ftls", "nonesuch")[2]
