"""tools/fsx.py on `disk`, a short form of it; and that it notices what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from schemes import rotated
from stand import Stand, same

from flashfs import inspect
from flashfs.fuse import SERVERS

sys.path.append(str(Path(__file__).parents[2] / "tools"))
from fsx import Differs, Fsx

SPAN = 4 << 20


@pytest.mark.mount
@pytest.mark.parametrize("server", list(SERVERS))
@pytest.mark.parametrize("ftl", rotated(0, 3))
def test_two_thousand_operations(stand: Callable[..., Stand], ftl: str, server: str) -> None:
    one = stand(64, ftl, server)
    fsx = Fsx(one.disk, 1, holes=server == "native", span=SPAN)
    done = fsx.run(2_000)
    assert sum(done.values()) == 2_000
    assert set(done) == {kind.__name__ for kind in fsx.menu}  # type: ignore[attr-defined]
    one.flush()
    one.kill()
    one.mount()
    same(one.disk.read_bytes()[:SPAN], fsx.model)
    one.unmount()
    assert inspect.problems(one.image, True) == []


@pytest.mark.parametrize("broken", ["pwrite", "copy_file_range", "pread"])
def test_what_is_wrong_is_told_with_its_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """On a plain file: a system call that from some call on does its work one byte off."""
    path = tmp_path / "file"
    path.write_bytes(bytes(1 << 20))
    fsx = Fsx(path, 3, span=1 << 20)
    real, calls = getattr(os, broken), iter(range(1_000_000))

    def shifted(*arguments: object) -> object:
        if next(calls) >= 40:
            return real(*arguments[:-1], max(0, arguments[-1] - 1))  # type: ignore[operator]
        return real(*arguments)

    monkeypatch.setattr(os, broken, shifted)
    monkeypatch.delitem(fsx.menu, fsx.copy_wrongly)  # other file systems copy ranges onto themselves
    with pytest.raises(Differs, match=f"fsx.py {path} --seed 3 --operations [0-9]+$"):
        fsx.run(2_000)
