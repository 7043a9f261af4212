"""In-line deduplication: pages with a content that is in flash already are not written."""

from __future__ import annotations

import hashlib
import io
import json
import os
import random
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from flashfs import cli
from flashfs.device import Device
from flashfs.errors import BindError
from flashfs.replay._record import OPERATIONS
from flashfs.replay.trace_reader import Header
from flashfs.replay.trace_writer import Recording
from nandimg import PRESETS

GEOMETRY = PRESETS["small-64m"].geometry
PAGE = GEOMETRY.page_bytes


def deduplicating(**options: str) -> Device:
    return Device.memory(GEOMETRY, "remapssd", {"dedup": "on", **options})


def found(device: Device) -> int:
    return int(device.stats()["scheme"]["dedup_found"])


def test_the_same_content_is_written_once() -> None:
    device, data = deduplicating(), os.urandom(16 * PAGE)
    for i in range(10):
        device.write(i * len(data), data)
    stats = device.stats()
    assert found(device) == 9 * 16
    assert stats["nand"]["by_cause"]["program"]["host"] == 16
    assert stats["scheme"]["dedup_reads"] == 9 * 16
    assert stats["waf"] < 0.5
    for i in range(10):
        assert device.read(i * len(data), len(data)) == data
    assert device.problems() == []


def test_what_one_changes_the_others_keep() -> None:
    device, data, other = deduplicating(), os.urandom(PAGE), os.urandom(PAGE)
    for lpa in range(3):
        device.write(lpa * PAGE, data)
    device.write(0, other)
    device.trim(PAGE, PAGE)
    assert [device.read(lpa * PAGE, PAGE) for lpa in range(3)] == [other, bytes(PAGE), data]
    device.write(3 * PAGE, data)  # it is known for as long as an LPA has it
    assert found(device) == 3
    assert device.problems() == []


def test_equal_pages_of_one_request() -> None:
    device, data = deduplicating(), os.urandom(PAGE)
    device.write(0, data * 12)
    assert found(device) == 11
    assert device.read(0, 12 * PAGE) == data * 12


def test_a_page_that_is_full_is_written_once_more_and_found_there() -> None:
    device, data = deduplicating(references="4"), os.urandom(PAGE)
    for lpa in range(12):
        device.write(lpa * PAGE, data)
    stats = device.stats()
    assert stats["nand"]["by_cause"]["program"]["host"] == 3
    assert found(device) == 9
    assert stats["scheme"]["dedup_reads"] == 9  # nothing is compared with a page that no LPA may join


def test_contents_are_right_while_it_cleans() -> None:
    device, rnd = deduplicating(), random.Random(1)
    contents = [rnd.randbytes(PAGE) for _ in range(500)]
    held = {}
    for _ in range(30_000):
        lpa = rnd.randrange(GEOMETRY.lpas)
        held[lpa] = rnd.choice(contents) if rnd.random() < 0.5 else rnd.randbytes(PAGE)
        device.write(lpa * PAGE, held[lpa])
    assert found(device) > 10_000
    assert device.stats()["scheme"]["rmm_carried"] > 0
    for lpa, data in held.items():
        assert device.read(lpa * PAGE, PAGE) == data
    assert device.problems() == []


def test_nothing_is_compared_unless_asked() -> None:
    device, data = deduplicating(verify="off"), os.urandom(PAGE)
    device.write(0, data)
    device.write(PAGE, data)
    assert found(device) == 1
    assert device.stats()["scheme"]["dedup_reads"] == 0


def test_a_fingerprint_takes_its_time() -> None:
    slow, fast = deduplicating(hash_us="100000"), deduplicating(hash_us="0")
    for device in (slow, fast):
        device.write(0, os.urandom(8 * PAGE))
    assert slow.end_ns - fast.end_ns >= 700_000_000


def test_a_protected_write_buffer_is_refused() -> None:
    with pytest.raises(BindError, match="--plp would protect nothing"):
        Device.memory(GEOMETRY, "remapssd", {"dedup": "on"}, plp=True)


def replayed(trace: object, dedup: str = "on", *words: str) -> dict[str, Any]:
    """What `flashfs replay` says of that, on a small chip unless ``words`` say otherwise."""
    out = io.StringIO()
    with redirect_stdout(out):
        code = cli.run(["replay", str(trace), "--ftl", "remapssd", "--opt", f"dedup={dedup}",
                        *(words or ("--preset", "small-64m", "--opt", "buffer=0")), "--json"])  # fmt: skip
    assert code == 0
    (result,) = json.loads(out.getvalue())
    return dict(result)


def test_a_replay_goes_by_content_hashes() -> None:
    """On a chip that keeps no data. Without repeats every page is written."""
    wafs = [replayed(f"uniform:ops=20k,write=1,dup={dup}", "on", "--size", "256M")["waf"] for dup in ("0.6", "0")]
    assert wafs[0] < 0.55 < 0.95 < wafs[1]


# --- contents that traces bring along


def programs(result: dict[str, Any]) -> int:
    return int(result["nand"]["by_cause"]["program"]["host"])


def test_fiu_content_hashes_find_duplicates(tmp_path: Path) -> None:
    """Each request of the FIU traces is 4 KiB with the MD5 of its content: one that came before is not written. What
    has no hash, or another page's content in part only, is."""
    rnd, lines, distinct, bare = random.Random(9), [], set(), 0
    places = rnd.sample(range(10_000), 3_000)
    for number, place in enumerate(places):
        content = rnd.randrange(1_200)
        md5 = hashlib.md5(b"%d" % content, usedforsecurity=False).hexdigest()
        if rnd.random() < 0.05:
            md5, bare = "", bare + 1
        else:
            distinct.add(md5)
        lines.append(f"{number * 1_000_000} {rnd.randrange(900)} nfsd {8 * place} 8 W 6 0 {md5}".rstrip())
        if rnd.random() < 0.1:
            lines.append(f"{number * 1_000_000 + 1} 7 nfsd {8 * place} 8 R 6 0 {md5}".rstrip())
    path = tmp_path / "cheetah.txt"
    path.write_text("\n".join(lines) + "\n")
    result = replayed(path)
    assert result["host"]["write"] == 3_000
    assert programs(result) == len(distinct) + bare
    assert result["scheme"]["dedup_found"] == 3_000 - len(distinct) - bare > 1_000
    assert result["waf"] < 0.7
    assert programs(replayed(path, "off")) == 3_000


def test_the_hashes_of_a_recording_find_duplicates(tmp_path: Path) -> None:
    """A mount's recording has a hash of each 4 KiB that was written; and remaps, which write nothing anyway."""
    rnd, path = random.Random(10), tmp_path / "recorded"
    header = Header(2, GEOMETRY.logical_bytes, PAGE, PAGE, 1_700_000_000_000_000_000, UUID(int=5), "remapssd")
    contents = [rnd.randbytes(PAGE) for _ in range(400)]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    recording, distinct, pages = Recording(file, path, header), set(), 0
    try:
        for place in rnd.sample(range(0, 8_000, 4), 300):
            data = b"".join(rnd.choice(contents) for _ in range(rnd.randint(1, 4)))
            assert recording.record(OPERATIONS.index("write"), place * PAGE, len(data), data)
            distinct |= {data[at : at + PAGE] for at in range(0, len(data), PAGE)}
            pages += len(data) // PAGE
        assert recording.record_remap(place * PAGE, 9_000 * PAGE, PAGE)
    finally:
        recording.close()
    result = replayed(path)
    assert (result["host"]["write"], result["host"]["remap"]) == (pages, 1)
    assert programs(result) == len(distinct) < pages - 200
    assert result["scheme"]["dedup_found"] == pages - len(distinct)
    assert result["scheme"]["remap_done"] == 1
    assert programs(replayed(path, "off")) == pages
