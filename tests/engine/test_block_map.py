"""The pictures of all blocks against what the engine says of each, page by page."""

from __future__ import annotations

import json
import random
import time

import numpy as np
import pytest
from schemes import KINDS

from flashfs.device import Device
from flashfs.engine.views import block_map
from flashfs.fuse.tree import encoded
from nandimg import Geometry

GEOMETRY = Geometry(
    page_bytes=512, pages_per_block=16, blocks=64, channels=2, dies=4, oob_bytes=64, lpas=700, nvram_bytes=8192
)


def used(ftl: str) -> Device:
    """A device on which cleaning, trims and checkpoints have been at work, and a block has gone bad."""
    device, rnd = Device.memory(GEOMETRY, ftl), random.Random(5)
    for turn in range(3000):
        page = rnd.randrange(700)
        device.write(page * 512, rnd.randbytes(512))
        if turn % 50 == 0:
            device.trim(rnd.randrange(600) * 512, 20 * 512)
        if turn % 70 == 0:
            device.flush()
    device.checkpoint()
    return device


@pytest.mark.parametrize("ftl", KINDS)
def test_block_map(ftl: str) -> None:
    device = used(ftl)
    found = device.block_map()
    pool, validity = device.ssd.pool, device.ssd.validity
    for block in range(GEOMETRY.blocks):
        said = pool.describe(block)
        assert found["states"][found["state"][block]] == said["state"]
        assert found["streams"][found["stream"][block]] == (said["stream"] or "none")
        assert found["valid"][block] == len(validity.live_in(block))
        assert found["erases"][block] == said["erases"]
        assert found["next_page"][block] == (0 if said["state"] == "free" else said["next_page"])
    assert {"free", "open", "closed", "meta"} <= {found["states"][state] for state in found["state"]}
    assert device.stats()["pool"] == pool.census()
    read = json.loads(encoded(found))
    assert {name: read[name] for name in ("state", "stream", "valid", "next_page", "erases")} == {
        name: found[name].tolist() for name in ("state", "stream", "valid", "next_page", "erases")
    }
    assert [read[name] for name in ("blocks", "pages_per_block", "dies")] == [64, 16, 4]


@pytest.mark.parametrize("ftl", KINDS)
def test_smart_is_what_the_chip_says_of_each_block(ftl: str) -> None:
    device = used(ftl)
    device.nand.mark_factory_bad(63)  # type: ignore[attr-defined]
    health = [device.nand.block_health(block) for block in range(GEOMETRY.blocks)]
    wear = [device.nand.erase_count(block) for block in range(GEOMETRY.blocks) if not health[block]]
    smart = device.smart()
    assert (smart["factory_bad"], smart["grown_bad"]) == (1, 0)
    assert smart["erases"] == {
        "min": min(wear), "max": max(wear), "mean": round(sum(wear) / 63, 3), "spread": max(wear) - min(wear),
    }  # fmt: skip
    assert json.loads(json.dumps(smart)) == smart  # plain numbers, no array's


@pytest.mark.parametrize("ftl", KINDS)
def test_survey_and_locations(ftl: str) -> None:
    device = used(ftl)
    arrays, pages = block_map.survey(device.nand, device.ssd)
    live = sum(len(device.ssd.validity.live_in(block)) for block in range(GEOMETRY.blocks))
    assert sum(pages.values()) == GEOMETRY.pages
    live -= len(device.ssd.owned_pages())  # of the map and of validity: they count by their kind
    assert (pages["live"], pages["torn"], pages["unknown"]) == (live, 0, 0)
    assert pages["superseded"] > 0
    assert pages["checkpoint"] > 0
    for block in range(GEOMETRY.blocks):
        statuses = [device.nand.read_spare_area(block, page)[0] for page in range(16)]
        assert arrays["programmed"][block] == sum(status != 0 for status in statuses)
        if statuses[0] and device.ssd.pool.describe(block)["state"] in ("open", "closed", "meta"):
            assert arrays["order"][block] == device.ssd.pool.describe(block)["order"]
    where = block_map.locations(device.ssd)
    named = block_map.mapped(device.ssd)
    assert np.array_equal(named.lpas, np.flatnonzero(where != 2**32 - 1))
    assert np.array_equal(named.ppas, where[named.lpas])
    assert np.array_equal(block_map.Mapped.of(where).ppas, named.ppas)
    for first, n in ((0, 5), (37, 400), (device.ssd.lpas - 3, 10), (device.ssd.lpas, 2)):
        assert np.array_equal(named.window(first, n), where[first : first + n])
    mapped = np.count_nonzero(where != 2**32 - 1)
    assert mapped == live or (device.ssd.validity.late and mapped < live)
    for lpa in range(0, 700, 7):
        raw = None if where[lpa] == 2**32 - 1 else device.nand.read_spare_area(*divmod(int(where[lpa]), 16))[1]
        assert device.ssd.mapped(lpa) == (raw is not None)
        assert raw is None or int.from_bytes(raw[8:12], "little") == lpa
    told: list[float] = []
    bare, without = block_map.survey(device.nand, progress=told.append)
    assert told == [0]
    streams = block_map.first_streams(device.nand, device.nand.maybe_written())
    assert streams.tolist() == [device.nand.read_spare_area(block, 0)[1][18] for block in range(64)]
    assert set(block_map.first_streams(device.nand, bytes(64))) == {255}
    alone = block_map.bare(device.nand)
    assert alone["erases"].tolist() == [device.nand.erase_count(block) for block in range(64)]
    assert alone["health"].tolist() == [device.nand.block_health(block) for block in range(64)]
    assert without["live"] == 0
    assert without["superseded"] == pages["live"] + pages["superseded"]
    assert np.array_equal(bare["programmed"], arrays["programmed"])


def test_joined() -> None:
    for numbers in ([], [0], [7, 10, 4294967295, 0], list(range(3000))):
        assert block_map.joined(np.array(numbers, np.uint32)) == ",".join(map(str, numbers)).encode()
    assert encoded({"a": [1], "b": np.array([1, 2], np.uint8)}) == b'{\n  "a": [\n    1\n  ],\n  "b": [1,2]\n}\n'


def test_a_hundred_thousand_blocks_keep_nobody_waiting() -> None:
    """The host waits while map.json is made: a pass in Python over so many blocks takes some 100 ms."""
    geometry = Geometry(page_bytes=512, pages_per_block=8, blocks=100_000, oob_bytes=64, lpas=500_000)
    device = Device.memory(geometry, backend="meta")
    device.ssd.write_pages(np.arange(400_000, dtype=np.uint32))
    taken = []
    for _ in range(7):
        started = time.process_time()
        encoded(device.block_map())
        taken.append(time.process_time() - started)
    assert min(taken) < 0.02
