"""The mount table, and what may be mounted over."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashfs.errors import UsageError
from flashfs.fuse import SERVERS, make_server, mounts
from flashfs.fuse.tree import DISK, ROOT, Tree


def test_table_knows_the_root() -> None:
    root = mounts.at(Path("/"))
    assert root is not None
    assert root.mountpoint == Path("/")


@pytest.mark.parametrize(("text", "path"), [("/a\\040b", "/a b"), ("/a\\134b", "/a\\b"), ("/a", "/a")])
def test_unescape(text: str, path: str) -> None:
    assert mounts.unescape(text) == path


def test_options_of_an_awkward_name() -> None:
    assert mounts.options(Path("/a,b\\c"), allow_other=True) == [
        "fsname=/a\\,b\\\\c",
        "subtype=flashfs",
        "allow_other",
    ]


def test_absolute_resolves_links(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert mounts.absolute(tmp_path / "link") == (tmp_path / "real").resolve()
    assert mounts.absolute(tmp_path / "none") == tmp_path.resolve() / "none"
    (tmp_path / "real/back").symlink_to("../link")
    assert mounts.absolute(tmp_path / "link/back/x/./..") == (tmp_path / "real").resolve()
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert mounts.absolute(tmp_path / "circle").name == "circle"


def test_mountpoints_that_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        mounts.check_mountpoint(tmp_path / "file")
    with pytest.raises(UsageError, match="does not exist"):
        mounts.check_mountpoint(tmp_path / "none" / "below")
    with pytest.raises(UsageError, match=r"not empty \(1 "):
        mounts.check_mountpoint(tmp_path)


def test_a_missing_mountpoint_is_made(tmp_path: Path) -> None:
    mounts.check_mountpoint(tmp_path / "new")
    assert (tmp_path / "new").is_dir()


def test_a_directory_is_no_corpse(tmp_path: Path) -> None:
    assert mounts.clear_corpse(tmp_path) == []
    assert mounts.clear_corpse(tmp_path / "none") == []


def test_unknown_server(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"no server called x: there is auto, {', '.join(SERVERS)}"):
        make_server("x", None, tmp_path)  # type: ignore[arg-type]


def test_tree() -> None:
    from ram_device import RamDevice

    device = RamDevice(1 << 20)
    tree = Tree(device, Path("/mnt"), "x", shared=True, traffic=dict)  # type: ignore[arg-type]
    names = dict(tree.entries())
    assert names[b"disk"] == DISK
    assert [tree.inode(name) for name in (b".", b"disk", b"nothing")] == [ROOT, DISK, None]
    for inode in (ROOT, *names.values()):
        attr = tree.attr(inode)
        assert attr is not None
        assert attr.inode == inode
    assert tree.attr(99) is None
    disk, stats = tree.attr(DISK), tree.attr(names[b"stats.json"])
    assert disk is not None
    assert stats is not None
    assert (disk.mode & 0o777, disk.blocks, stats.mode & 0o777) == (0o660, 2048, 0o444)
    assert tree.text(names[b"stats.json"]).endswith(b"}\n")
