"""``make demo``: its parts on files of every kind, and a small run of the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stand import Stand, lacks

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import demo  # noqa: E402

pytestmark = pytest.mark.mount


def test_sources_are_bounded() -> None:
    files = demo.sources()
    assert 3_000 <= len(files) <= 6_000
    assert sum(path.stat().st_size for path, _ in files) <= 250_000_000
    assert len({inside for _, inside in files}) == len(files)


def test_sources_stop_at_either_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / name))
    for i in range(20):
        path = tmp_path / ("stdlib" if i < 15 else "purelib") / f"{i:02}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(100))
    assert len(demo.sources()) == 20
    assert [inside.name for _, inside in demo.sources(files_most=10)] == [f"{i:02}.py" for i in range(10)]
    assert len(demo.sources(bytes_most=1_750)) == 17
    assert demo.sources(bytes_most=99) == []


def test_the_page_of_the_last_file_that_has_one(stand: Callable[..., Stand], need_loop: None) -> None:
    """An empty file has no extent. The demo once ended with a traceback when the last acknowledged one was empty."""
    if (missing := lacks("ext4", "filefrag")) is not None:
        pytest.skip(missing)
    one = stand(64, "pagemap")
    one.attach()
    one.make("ext4")
    one.mount_files("ext4")
    contents = {"a name: with 0: blanks": b"ab" * 5_000, "one byte": b"x", "empty": b"", "empty too": b""}
    for name, data in contents.items():
        with (one.root / name).open("wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())
    names = [Path(name) for name in contents]
    assert demo.first_lpa(one.root / "empty") is None
    found = demo.last_with_a_page(names, one.root)
    assert found is not None
    assert found[0] == Path("one byte")
    first, lpa = demo.last_with_a_page(names[:1], one.root) or (None, 0)
    assert first == names[0]
    assert demo.last_with_a_page(names[2:], one.root) is None
    one.umount_files()
    with one.disk.open("rb") as disk:
        for name, at in ((names[0], lpa), found):
            disk.seek(at * 4096)
            assert disk.read(4096).startswith(contents[str(name)][:4096])
    one.unmount()


def test_a_small_run(need_loop: None) -> None:
    """With the PATH that `su` keeps of an ordinary user."""
    command = [sys.executable, str(ROOT / "tools/demo.py"), "--preset", "small-64m", "--files", "120"]
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "acknowledged files are there, each with its SHA-256" in done.stdout
    assert done.stdout.endswith("demo: done; nothing is left behind\n")
