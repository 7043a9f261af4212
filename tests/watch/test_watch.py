"""What `top` says of two looks at a mount, and how it is drawn; no mount needed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from schemes import KINDS

from flashfs import watch
from flashfs.crash.programs import from_checkpoints
from flashfs.device import Device
from flashfs.errors import FlashfsError
from flashfs.fuse.places import MountPlace
from flashfs.fuse.tree import encoded
from nandimg import PRESETS

Change = Callable[[dict[str, Any]], object]
STATES = ["free", "pending", "open", "closed", "meta", "bad"]


class Texts:
    """A folder with the texts of a device in memory, as a server would make them."""

    def __init__(self, folder: Path, ftl: str = "pagemap", **options: str) -> None:
        self.folder = folder
        self.device = Device.memory(PRESETS["tiny-24d"].geometry, ftl, options)
        self.requests = {"read": 0, "write": 0, "trim": 0, "flush": 0}
        self.moved = {"read": 0, "write": 0, "trim": 0}
        self.uptime_s = 10.0
        self.pid = 7

    def write(self, pages: int, seed: int) -> None:
        rnd = np.random.default_rng(seed)
        for lpa in rnd.integers(0, 80, pages):
            self.device.write(int(lpa) * 512, bytes([seed]) * 512)
        self.requests["write"] += pages
        self.moved["write"] += 512 * pages

    def look(self, change: Change | None = None, text: str = "stats.json") -> watch.Look:
        server = {"requests": self.requests, "bytes": self.moved, "in_flight": 3, "uptime_s": self.uptime_s}
        made: dict[str, dict[str, Any]] = {
            "stats.json": {**self.device.stats(), "server": copy.deepcopy(server)},
            "smart.json": self.device.smart(),
            "config.json": {**self.device.config(), "mountpoint": "/mnt", "server": "pyfuse3", "pid": self.pid},
            "map.json": self.device.block_map(),
        }
        if change:
            change(made[text])
        for name, found in made.items():
            (self.folder / name).write_bytes(encoded(found))
        return watch.look(MountPlace(self.folder))


@pytest.fixture
def texts(tmp_path: Path) -> Texts:
    return Texts(tmp_path)


def test_a_shot_reads_the_block_map_once(texts: Texts) -> None:
    """At 2 TiB it has 25 MB, and rates need none of it."""
    texts.look()
    asked: list[str] = []

    class Counted(MountPlace):
        def text(self, name: str) -> dict[str, Any]:
            asked.append(name)
            return super().text(name)

    shots = watch.shots(Counted(texts.folder), 0.0)
    _, look = next(shots)
    assert len(look.blocks["state"]) == texts.device.nand.blocks
    assert asked.count("map.json") == 1
    assert asked.count("stats.json") == 2
    next(shots)
    assert asked.count("map.json") == 2


def drawn(picture: watch.Picture, width: int, height: int | None, encoding: str = "utf-8") -> list[str]:
    """The lines that a terminal of that size would show."""
    console = Console(width=width, height=height or 100, color_system=None, force_terminal=True)
    options = console.options.update(width=width)
    options.height = height
    options.encoding = encoding
    lines = console.render_lines(picture, options)
    return ["".join(segment.text for segment in line) for line in lines]


def test_rates_are_of_the_servers_clock(texts: Texts) -> None:
    texts.write(300, 1)
    before = texts.look()
    stats = texts.device.stats()
    texts.write(500, 2)
    texts.requests["flush"] += 4
    texts.uptime_s += 2.5
    now = texts.look()
    found = watch.figures(before, now)
    after = texts.device.stats()
    assert found["interval_s"] == 2.5
    assert found["host"]["write"] == {
        "iops": 200.0, "requests": 800, "bytes_per_s": 102_400.0, "bytes": 409_600, "bytes_each": 512.0,
    }  # fmt: skip
    assert found["host"]["flush"] == {"iops": 1.6, "requests": 4}
    assert found["host"]["read"]["bytes_each"] is None
    programs = after["nand"]["program"] - stats["nand"]["program"]
    assert found["waf"] == {"total": after["waf"], "interval": round(programs / 500, 4)}
    assert found["flash"]["program"] == round(programs / 2.5, 3)
    moved = after["nand"]["by_cause"]["program"]["gc"] - stats["nand"]["by_cause"]["program"].get("gc", 0)
    assert found["cleaning"]["programs_per_s"] == round(moved / 2.5, 3) > 0
    assert sum(found["programs_by_cause"].values()) == pytest.approx(found["flash"]["program"], abs=0.01)
    assert (found["queue"], found["free_blocks"]) == (3, after["pool"]["free"])
    assert found["dram"]["total"] == {"packed": after["dram"]["total"], "allocated": after["heap"]}
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize("ftl", KINDS)
def test_victims_are_the_blocks_that_were_emptied(tmp_path: Path, ftl: str) -> None:
    """Counted by watching which blocks are in use before and after each request, and how many were opened meanwhile: a
    merge may fill a block and empty it between two looks. Over many intervals."""
    texts = Texts(tmp_path, ftl, **from_checkpoints(ftl))
    texts.write(2000, 1)  # no block is new any more
    pool, blocks = texts.device.ssd.pool, texts.device.nand.blocks

    def users() -> dict[int, tuple[int, bool]]:
        """{block in use: (its order, whether it is of the log)}: a block that is opened again has another order."""
        said = {block: pool.describe(block) for block in range(blocks)}
        return {block: (one["order"], one["state"] == "meta") for block, one in said.items()
                if one["state"] in ("open", "closed", "meta")}  # fmt: skip

    seen = 0
    before, then, opened = texts.look(), users(), pool.last_order
    for seed in range(400):
        texts.device.write(seed * 37 % 80 * 512, bytes(512))
        now = users()
        of_the_log = sum(meta for block, (order, meta) in then.items() if now.get(block) != (order, meta))
        seen += pool.last_order - opened + len(then) - len(now) - of_the_log
        then, opened = now, pool.last_order
        if seed % 50 == 49:
            texts.uptime_s += 1
            look = texts.look()
            assert watch.figures(before, look)["cleaning"]["victims"] == seen
            before, seen = look, 0


def test_one_look_has_no_rates(texts: Texts) -> None:
    texts.write(50, 1)
    found = watch.figures(None, texts.look())
    rates = (found["host"]["write"]["iops"], found["waf"]["interval"], found["cleaning"]["victims"])
    assert rates == (None, None, None)
    assert found["host"]["write"]["requests"] == 50
    before = texts.look()
    texts.pid, texts.uptime_s = 8, 20.0  # mounted anew in between
    assert watch.figures(before, texts.look())["host"]["write"]["iops"] is None
    texts.pid, texts.uptime_s = 7, 1.0
    assert watch.figures(before, texts.look())["interval_s"] == 0


@pytest.mark.parametrize("height", [1, 2, 5, 9, 14, 24, 40, 100])
@pytest.mark.parametrize("width", [1, 8, 20, 40, 60, 80, 92, 200])
def test_any_size(texts: Texts, width: int, height: int) -> None:
    texts.write(300, 1)
    now = texts.look()
    found = watch.figures(None, now)
    lines = drawn(watch.Picture(found, now, [found] * 90, "q quits "), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    if width >= 40 and height >= 9:
        assert any("24 blocks of 8 pages" in line for line in lines)


def test_a_picture_shows_it_all(texts: Texts) -> None:
    texts.write(600, 1)
    before = texts.look()
    texts.write(600, 2)
    texts.uptime_s += 1
    now = texts.look()
    found = watch.figures(before, now)
    text = "\n".join(drawn(watch.Picture(found, now), 120, None))
    for word in ("pagemap", "IOPS", "600", "WAF", f"{found['waf']['interval']:.2f} now", "gc", "victims/s", "spread",
                 "page table", "allocated", "total", "24 blocks of 8 pages", "free", "open", "log", "bad"):  # fmt: skip
        assert word in text
    assert "▒" in text


def test_what_a_low_terminal_has_no_panel_for_is_a_line(texts: Texts) -> None:
    """At 80 x 24, and the way out stays in sight however long the path is."""
    before = texts.look()
    texts.write(300, 1)
    texts.uptime_s += 1
    after = texts.look()
    found = watch.figures(before, after)
    found["mountpoint"] = "/a/long/path" * 9
    lines = drawn(watch.Picture(found, after, note="q quits"), 80, 24)
    assert len(lines) <= 24
    assert lines[0].rstrip().endswith("q quits")
    for title in ("cleaning and wear", "DRAM", found["ftl"]):
        assert any(line.startswith(f" {title}  ") for line in lines), title


def test_each_block_is_a_cell_as_high_as_it_is_valid(texts: Texts) -> None:
    def blocks(found: dict[str, Any]) -> None:
        state = [3] * 9 + [0, 1, 2, 4, 5] + [0] * 10
        found["state"], found["valid"] = np.array(state), np.array([*range(9), 0, 0, 8, 0, 0, *[0] * 10])

    now = texts.look(blocks, "map.json")
    lines = drawn(watch.Picture(watch.figures(None, now), now), 120, None)
    start = next(index for index, line in enumerate(lines) if "24 blocks" in line)
    assert lines[start + 1].strip("│ ") == "▁▂▃▄▅▆▇██·∘█▒×··········"
    assert "9 closed   ▆ 1 open   · 11 free   ∘ 1 pending   ▒ 1 log   × 1 bad" in lines[start + 2]
    plain = drawn(watch.Picture(watch.figures(None, now), now), 120, None, "ascii")
    assert plain[start + 1].strip("| ") == "1234567" + "88.o8mx.........."
    narrow = drawn(watch.Picture(watch.figures(None, now), now), 16, 10)  # one line of twelve cells
    assert any(line.strip("│ ") == "▁▃▅▇██▒·····" for line in narrow), narrow


def test_what_the_texts_say_is_not_obeyed(texts: Texts) -> None:
    """A scheme's figures and an image's name are other people's: no markup, no escape, no second line."""
    nasty = "[bold]x[/]\x1b[31m\n\u202eevil"

    def change(found: dict[str, Any]) -> None:
        found["scheme"] = {nasty: nasty, "deep": {"a": [1, 2]}, "none": None, "yes": True, "share": 0.25}
        found["dram"][nasty] = found["allocated"][nasty] = 5

    now = texts.look(change)
    now.config["image"] = now.config["ftl"] = nasty
    text = "\n".join(drawn(watch.Picture(watch.figures(None, now), now), 200, None))
    assert "[bold]x[/]" in text
    assert not any(character in text for character in "\x1b\u202e")
    assert "0.25" in text


def test_alarms_stand_on_top(texts: Texts) -> None:
    now = texts.look()
    now.smart["failed"], now.smart["lost"], now.stats["unreadable"] = "a sync failed", 2, 1
    lines = drawn(watch.Picture(watch.figures(None, now), now), 100, 30)
    assert [line.strip() for line in lines[1:4]] == [
        "the device takes no more changes: a sync failed", "1 pages unreadable", "2 pages lost",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("stats.json", lambda found: found.pop("server")),
        ("stats.json", lambda found: found["server"].pop("uptime_s")),
        ("stats.json", lambda found: found.update(nand=[])),
        ("map.json", lambda found: found.update(state=np.array([9] * 24))),
        ("map.json", lambda found: found.update(valid=np.array([1] * 23))),
        ("map.json", lambda found: found.update(valid=[1.5] * 24)),
        ("map.json", lambda found: found.update(valid=[[1], [1, 2]] * 12)),
        ("map.json", lambda found: found.update(erases=["<b>"] * 24)),
        ("map.json", lambda found: found.update(erases=[-1] * 24)),
        ("config.json", lambda found: found.update(pid="x")),
    ],
)
def test_texts_of_somebody_else_are_one_line(texts: Texts, text: str, change: Change) -> None:
    with pytest.raises(FlashfsError) as caught:
        texts.look(change, text)
    assert str(texts.folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_texts(texts: Texts) -> None:
    with pytest.raises(watch.Gone, match="nothing is mounted there any more"):
        watch.look(MountPlace(texts.folder))
    texts.look()
    (texts.folder / "map.json").write_text("[]")
    with pytest.raises(FlashfsError, match="no JSON object"):
        watch.look(MountPlace(texts.folder))
    (texts.folder / "map.json").write_bytes(b"\xff")
    with pytest.raises(FlashfsError, match="no JSON"):
        watch.look(MountPlace(texts.folder))
