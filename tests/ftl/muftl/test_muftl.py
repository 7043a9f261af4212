"""u-FTL's own: the tree through which translation pages are found, and what is in DRAM of map and validity."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

import nandimg
from flashfs.device import Device
from flashfs.parts.paged.cmt import ENTRY_BYTES
from flashfs.parts.paged.map_btree import level_widths
from nandimg import Geometry
from nandimg._torn import spoil

PAGE = 512
PER_PAGE = PAGE // 4
SMALL = Geometry(page_bytes=PAGE, pages_per_block=16, blocks=512, channels=2, dies=2, oob_bytes=64, lpas=5_000)
OPTIONS = {"buffer": 0, "cmt_bytes": 100 * ENTRY_BYTES, "fanout": 3, "nodes": 2}


def muftl(**options: int) -> Device:
    return Device.memory(SMALL, "muftl", {**OPTIONS, **options})


def put(device: Device, lpa: int, n: int = 1) -> None:
    lpas = np.arange(lpa, lpa + n, dtype=np.uint32)
    device.ssd.write_pages(lpas, np.frombuffer(b"".join(page_of(one) for one in lpas.tolist()), np.uint8))


def page_of(lpa: int) -> bytes:
    return lpa.to_bytes(4, "little") * (PAGE // 4)


def worked(device: Device, turns: int = 3_000, seed: int = 1) -> Device:
    rnd = random.Random(seed)
    put(device, 0, SMALL.lpas)
    for _ in range(turns):
        put(device, rnd.randrange(SMALL.lpas))
    return device


def reads_all(device: Device, holes: range = range(0)) -> None:
    into = bytearray(SMALL.lpas * PAGE)
    device.ssd.read_pages(np.arange(SMALL.lpas, dtype=np.uint32), np.frombuffer(into, np.uint8), 0)
    for lpa in range(SMALL.lpas):
        assert into[lpa * PAGE : (lpa + 1) * PAGE] == (bytes(PAGE) if lpa in holes else page_of(lpa)), lpa


@pytest.mark.parametrize(("leaves", "fanout", "widths"), [
    (1, 4, [1]), (4, 4, [4]), (5, 4, [5, 2]), (40, 3, [40, 14, 5, 2]), (1 << 20, 1024, [1 << 20, 1024]),
])  # fmt: skip
def test_the_shape_of_the_tree(leaves: int, fanout: int, widths: list[int]) -> None:
    assert level_widths(leaves, fanout) == widths


def test_every_node_says_where_the_pages_under_it_are() -> None:
    """In flash, page by page: a node's pointers are the places of its children, but for those that wait in DRAM."""
    device = worked(muftl())
    tree, chip = device.ssd.mapping.gtd, device.nand
    nodes = {node["node"]: node for node in tree.nodes()}
    assert {node["level"] for node in nodes.values()} == {1, 2, 3}
    assert len(nodes) in (20, sum(level_widths(-(-SMALL.lpas // PER_PAGE), 3)[1:]))  # the last one may wait yet
    for node in nodes.values():
        _, data, _ = chip.read_page(*divmod(node["ppa"], SMALL.pages_per_block))
        said = np.frombuffer(data, "<u4")[:3]
        if node["level"] > 1 and not node["newer"]:
            there = [nodes[n]["ppa"] for n in range(node["first_page"], node["first_page"] + node["pointers"])]
            assert [ppa for ppa in said.tolist() if ppa != 2**32 - 1] == there
    assert device.problems() == []
    reads_all(device)


def test_neither_directory_nor_bitmap_is_in_dram() -> None:
    """The root, a few nodes and a few pages of the bitmap are, in no checkpoint more than that."""
    device = worked(muftl())
    tables = device.ssd.dram()
    assert {"tree_root", "tree_nodes", "tree_pointers", "pvb_frames", "pvb_directory"} <= tables.keys()
    assert not {"gtd", "pvb"} & tables.keys()
    assert tables["tree_root"][0] == 4 * 2
    assert tables["tree_nodes"][0] < 5 * PAGE
    saved = device.ssd.mapping.save()
    assert "gtd" not in saved and len(saved["root"]) == 4 * (1 + 2)
    assert len(saved["pointers"]) <= 8 * 40


def test_nodes_are_read_through_a_cache_of_so_many() -> None:
    """With all nodes in DRAM none is read twice while none is written; with one, a walk over all pages reads."""
    reads = {}
    for frames in (1, 64):
        device = worked(muftl(nodes=frames), 200)
        before = device.ssd.mapping.gtd.node_reads
        for page in random.Random(2).sample(range(39), 39):
            into = np.zeros(PAGE, np.uint8)
            device.ssd.read_pages(np.array([page * PER_PAGE + 5], np.uint32), into, 0)
        reads[frames] = device.ssd.mapping.gtd.node_reads - before
    assert reads[64] < 25 < reads[1]


def test_a_clean_mount_reads_no_node(tmp_path: Path) -> None:
    path, how = tmp_path / "image.nand", {name: str(value) for name, value in OPTIONS.items()}
    nandimg.create(path, SMALL)
    with Device.open(path, ftl="muftl", options=how) as device:
        worked(device, 500)
    del how["fanout"]  # stored with the image
    with Device.open(path, options=how) as device:
        assert device.recovery.clean
        assert device.ssd.mapping.figures()["translation_reads"] == 0
        assert device.stats()["nand"]["by_cause"]["read"].get("validity", 0) == 0
        reads_all(device)
        assert device.problems() == []


def test_what_is_trimmed_whole_takes_its_nodes_along() -> None:
    device = worked(muftl(), 100)
    device.trim(0, SMALL.lpas * PAGE)
    for _ in range(200):
        device.ssd.idle()
        put(device, 0)
        device.trim(0, PAGE)
    assert len(device.ssd.mapping.gtd.entries()) <= 3  # what was trimmed in parts goes when it is next written back
    assert len(device.ssd.mapping.gtd.nodes()) <= 3 * 3
    assert not any(device.ssd.mapped(lpa) for lpa in range(SMALL.lpas))
    assert device.problems() == []


def test_a_node_that_cannot_be_read_is_made_again() -> None:
    device = worked(muftl(nodes=1))
    device.trim(1_000 * PAGE, 300 * PAGE)
    device.checkpoint()
    for node in device.ssd.mapping.gtd.nodes()[:9]:
        spoil(device.nand, *divmod(node["ppa"], SMALL.pages_per_block))
    reads_all(device, range(1_000, 1_300))
    assert device.ssd.mapping.figures()["rebuilds"] >= 1
    assert any("node of the map's tree" in alarm for alarm in device.ssd.alarms)
    assert all("torn" in line for line in device.problems())


@pytest.mark.parametrize("frames", [1, 4])
def test_reports_that_may_not_wait_go_to_flash_before_the_next_request(frames: int) -> None:
    """waiting=0: what a request reported is in its pages of the bitmap before the next one changes anything."""
    programs = {}
    for waiting in (0, 20, 1 << 16):
        device = muftl(waiting=waiting, frames=frames, cmt_bytes=SMALL.lpas * ENTRY_BYTES)
        put(device, 0, SMALL.lpas)
        before, most = device.ssd.validity.figures()["bitmap_programs"], 0
        rnd = random.Random(4)
        for _ in range(1_000):
            put(device, rnd.randrange(SMALL.lpas))
            most = max(most, device.ssd.validity.log_n)
        programs[waiting] = device.ssd.validity.figures()["bitmap_programs"] - before
        assert most <= waiting + 2 * SMALL.pages_per_block + 4  # and those of one request, with a block's move
        reads_all(device)
        assert device.problems() == []
        device.close()
    assert programs[0] > 2 * programs[20] > 2 * programs[1 << 16] > 0
