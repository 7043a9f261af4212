"""Commands to a running mount: its `control`, `flashfs cut`, `fault` and `smart`, and `dump` of a mount."""

from __future__ import annotations

import errno
import json
import os
import random
import struct
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from mounting import flashfs, kill, pid_of

from flashfs import inspect
from flashfs.device import Device
from flashfs.engine.device.metalog import newest_slot, sealed
from flashfs.fuse import health, mounts, places
from flashfs.fuse.control_commands import Control, RefusedError
from nandimg import create, image
from nandimg.presets import PRESETS

pytestmark = pytest.mark.mount
PAGE = 4096
SERVERS = ("native", "pyfuse3")


def written(mount: Path, pages: int, seed: int, sync: bool = True) -> bytes:
    """So many pages of noise at the start of the device."""
    data = random.Random(seed).randbytes(pages * PAGE)
    fd = os.open(mount / "disk", os.O_RDWR)
    try:
        os.pwrite(fd, data, 0)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    return data


@pytest.mark.parametrize("server", SERVERS)
def test_a_mount_is_dumped(chip: Path, mountpoint: Path, tmp_path: Path, server: str) -> None:
    flashfs("mount", chip, mountpoint, "--ftl", "slimftl", "--server", server)
    written(mountpoint, 40, 1)
    reads = json.loads((mountpoint / "stats.json").read_text())["nand"]
    live = {view: flashfs("dump", mountpoint, *view.split(), "--json").stdout for view in ("lpa 7", "blocks")}
    assert json.loads((mountpoint / "stats.json").read_text())["nand"] == reads  # the mount's own count is untouched
    flashfs("dump", mountpoint, "--html", tmp_path / "live.html")
    assert flashfs("dump", mountpoint, "page", code=2).stderr.count("\n") == 1
    assert "another name" in flashfs("dump", mountpoint, "--html", tmp_path / "live.html", code=1).stderr
    flashfs("cut", mountpoint)
    for view, said in live.items():
        assert json.loads(said) == json.loads(flashfs("dump", chip, *view.split(), "--json").stdout), view
    assert (tmp_path / "live.html").read_text() == inspect.html(chip)


def test_how_far_a_page_is_can_be_read_meanwhile(
    chip: Path, mountpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the descriptor that is to have the page: on a terminal, a percentage."""
    monkeypatch.setattr(places, "TOLD_S", 0.001)  # a fast machine makes the page in less than the usual 0.2 s
    create(chip, PRESETS["geckoftl-32g"].geometry, force=True)
    flashfs("mount", chip, mountpoint, "--ftl", "slimftl")
    written(mountpoint, 512, 3)
    rings = json.loads((mountpoint / "config.json").read_text())["transport"] == "io_uring"
    if rings and len(os.sched_getaffinity(0)) == 1:
        pytest.skip("needs two processors: over io_uring the requests of one are done one after another")
    for _ in range(20):  # this process may get no processor while the page is made
        said: list[float] = []
        made = Control(mountpoint).write_html(tmp_path / "page.html", True, said.append)
        assert made["blocks"] == 65_536
        assert said == sorted(said)
        assert said[-1] == 1
        if said[0] < 1:
            break
    assert any(0 <= share < 1 for share in said)


def test_what_is_not_in_flash_is_said(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint, "--opt", "buffer=64")
    written(mountpoint, 3, 2, sync=False)
    said = flashfs("dump", mountpoint, "lpa", "1")
    assert "3 pages are in the write buffer alone" in said.stderr
    found, _ = Control(mountpoint).dump("lpa", 1)
    assert found["copies"] == []
    written(mountpoint, 3, 2)
    found, note = Control(mountpoint).dump("lpa", 1)
    assert (len(found["copies"]), note) == (1, "")


@pytest.mark.parametrize("server", SERVERS)
def test_control_answers_by_the_same_descriptor(chip: Path, mountpoint: Path, server: str) -> None:
    flashfs("mount", chip, mountpoint, "--server", server)
    state = json.loads((mountpoint / "control").read_text())
    assert (state["commands"], state["faults"]) == (["dump", "html", "fault", "cut"], None)
    fd = os.open(mountpoint / "control", os.O_RDWR | os.O_TRUNC)  # as a shell opens it
    try:
        os.write(fd, b"dump header\n")
        assert json.loads(os.pread(fd, 1 << 16, 0))["found"]["ftl"] == "pagemap"
        for wrong in (b" ", b"format", b"dump", b"dump lpa x", b"dump lpa 99999999", b"html now", b"fault fail=1"):
            with pytest.raises(OSError, match="Invalid") as error:
                os.write(fd, wrong)
            assert error.value.errno == errno.EINVAL
            assert json.loads(os.pread(fd, 1 << 16, 0))["error"]
    finally:
        os.close(fd)
    with pytest.raises(PermissionError):
        os.open(mountpoint / "stats.json", os.O_RDWR)
    flashfs("umount", mountpoint)


@pytest.mark.parametrize("server", SERVERS)
def test_faults_come_and_go(chip: Path, mountpoint: Path, server: str) -> None:
    flashfs("mount", chip, mountpoint, "--server", server, "--fault", "later")
    written(mountpoint, 20, 3)
    assert "no faults" in flashfs("fault", mountpoint).stdout
    flashfs("fault", mountpoint, "eio=2+")
    with pytest.raises(OSError, match="Input/output"):
        written(mountpoint, 20, 4)
    flashfs("fault", mountpoint, "none")
    data = written(mountpoint, 20, 5)
    assert "fault fial=3" in flashfs("fault", mountpoint, "fial=3", code=2).stderr.replace("--fault", "fault")
    flashfs("cut", mountpoint, "--at", "6", "--shape", "prefix")
    with pytest.raises(OSError, match=r"abort|not connected"):
        written(mountpoint, 20, 6)
    flashfs("mount", chip, mountpoint)
    raw = (mountpoint / "disk").read_bytes()[: 20 * PAGE]
    new = random.Random(6).randbytes(20 * PAGE)
    for at in range(0, 20 * PAGE, PAGE):
        assert raw[at : at + PAGE] in (data[at : at + PAGE], new[at : at + PAGE])
    said = flashfs("fault", mountpoint, "fail=1", code=2).stderr
    assert "--fault later" in said and said.count("\n") == 1
    said = flashfs("cut", mountpoint, "--at", "5", code=2).stderr
    assert "needs a device started with `--fault later`" in said
    flashfs("umount", mountpoint)


def test_a_cut_loses_what_was_not_flushed(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint, "--opt", "buffer=64")
    old = written(mountpoint, 8, 7)
    written(mountpoint, 8, 8, sync=False)
    pid = pid_of(mountpoint)
    for words in (("cut", mountpoint, "--at", 5), ("fault", mountpoint, "fail=10")):
        assert "needs a device started with `--fault later`" in flashfs(*words, code=2).stderr
    assert str(chip) in flashfs("cut", mountpoint).stdout
    with pytest.raises(OSError, match="No such"):
        Path(f"/proc/{pid}/exe").readlink()
    assert mounts.is_corpse(mountpoint)
    flashfs("mount", chip, mountpoint)
    assert (mountpoint / "disk").read_bytes()[: 8 * PAGE] == old
    flashfs("umount", mountpoint)
    assert "no flashfs mount" in flashfs("cut", mountpoint, code=2).stderr
    assert "--at" in flashfs("cut", mountpoint, "--shape", "prefix", code=2).stderr


def test_umount_after_a_cut_that_was_asked_for(chip: Path, mountpoint: Path) -> None:
    """It is no failure; a kill is one, also after such a cut."""
    try:
        os.setxattr(chip, "user.test", b"")
    except OSError:
        pytest.skip("needs extended attributes of users, where the image is")
    flashfs("mount", chip, mountpoint)
    flashfs("cut", mountpoint)
    for _ in range(2):
        assert "its power was cut, as asked for" in flashfs("umount", mountpoint).stdout
        flashfs("mount", chip, mountpoint, "--fault", "later")
        flashfs("cut", mountpoint, "--at", 1)
        with pytest.raises(OSError):
            written(mountpoint, 1000, 1)
    assert "its power was cut" in flashfs("umount", mountpoint).stdout
    flashfs("mount", chip, mountpoint)
    kill(mountpoint)
    assert "nothing was checkpointed" in flashfs("umount", mountpoint, code=1).stderr


def test_smart_counts_a_whole_life(chip: Path, mountpoint: Path) -> None:
    programs = 0
    for turn in range(3):
        with Device.open(chip) as device:
            device.write(0, bytes([turn]) * 100 * PAGE)
            device.flush()
            life = device.smart()["life"]
            assert life["host_writes"] == 100 * (turn + 1)
            assert life["programs"] >= programs + 100
            programs = life["programs"]
        with Device.open(chip, readonly=True) as device:
            still = device.smart()["life"]
            assert (still["host_writes"], still["unsafe_shutdowns"]) == (100 * (turn + 1), 0)
            assert still["programs"] > programs  # a checkpoint after it
            programs = still["programs"]
    assert health.of(chip)["power_cycles"] == 3
    flashfs("mount", chip, mountpoint)
    assert health.of(mountpoint)["power_cycles"] == 4
    written(mountpoint, 5, 9)
    flashfs("cut", mountpoint)
    flashfs("mount", chip, mountpoint)
    assert json.loads(flashfs("smart", mountpoint, "--json").stdout)["life"]["unsafe_shutdowns"] == 1
    flashfs("umount", mountpoint)
    said = " ".join(flashfs("smart", chip).stdout.split())
    for line in ("available spare 100 %", "percentage used 0", "unsafe shutdowns 1", "overall passed"):
        assert line in said
    for line in ("data units written at least 1.2 MiB by the host in all its life", "NAND written at least "):
        assert line in said  # what was written before the cut is in no counter


def test_smart_of_what_is_not_well(tmp_path: Path) -> None:
    made = tmp_path / "image"
    image.create(made, image.Geometry(pages_per_block=16, blocks=64, lpas=600))
    assert "blank" in flashfs("smart", made, code=2).stderr
    assert "no flashfs mount" in flashfs("smart", tmp_path, code=2).stderr
    with Device.memory(image.Geometry(pages_per_block=16, blocks=64, lpas=600)) as device:
        assert (device.smart()["spare"], device.smart()["used"]) == (100.0, 0.0)  # of what it was made with
    well = {"failed": None, "lost": 0, "alarms": [], "host_disk": None}
    assert not health.is_bad(well)
    for one in ({"failed": "stopped"}, {"lost": 2}, {"alarms": ["damage"]}, {"host_disk": "it is full"}):
        assert health.is_bad({**well, **one})


def test_a_page_never_takes_the_image_s_place(chip: Path, mountpoint: Path, tmp_path: Path) -> None:
    """Neither by --force, nor because a name means another file by now."""
    flashfs("mount", chip, mountpoint)
    assert "is the image itself" in flashfs("dump", mountpoint, "--html", chip, "--force", code=2).stderr
    chip.rename(tmp_path / "moved")
    assert "is gone, or another file" in flashfs("dump", mountpoint, "header", code=2).stderr
    image.create(chip, image.Geometry(pages_per_block=16, blocks=64, lpas=600))
    assert "is gone, or another file" in flashfs("dump", mountpoint, "header", code=2).stderr
    (tmp_path / "moved").rename(chip)
    assert json.loads(flashfs("dump", mountpoint, "header", "--json").stdout)["ftl"] == "pagemap"
    flashfs("umount", mountpoint)


@pytest.mark.parametrize("server", SERVERS)
def test_who_may_not_write_to_disk_may_not_command(chip: Path, mountpoint: Path, server: str) -> None:
    flashfs("mount", chip, mountpoint, "--server", server, "--allow-other")
    assert (mountpoint / "control").stat().st_mode == (mountpoint / "disk").stat().st_mode
    flashfs("umount", mountpoint)


def test_a_cut_to_come_clears_no_faults(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint, "--fault", "eio=500+")
    assert "cut=9:before eio=500+` sets both" in flashfs("cut", mountpoint, "--at", "9", code=2).stderr
    assert "eio=500+;" in flashfs("fault", mountpoint).stdout
    flashfs("umount", mountpoint)


def test_a_full_counter_stays_full(chip: Path) -> None:
    with Device.open(chip, ftl="pagemap"):
        pass
    with closing(image.open_image(chip)) as found:
        raw = newest_slot(found.chip)
        full = struct.pack("<IQQQQII", 0, *[2**64 - 1] * 4, 2**32 - 1, 1)
        for slot in range(2):
            found.chip.write_boot_slot(slot, sealed(raw[:20] + full))
    for _ in range(2):
        with Device.open(chip) as device:
            device.write(0, bytes([1]) * PAGE)
            assert device.smart()["life"]["host_writes"] >= 2**64 - 1


def test_dump_of_a_mount_takes_no_ftl(chip: Path, mountpoint: Path) -> None:
    flashfs("mount", chip, mountpoint)
    assert "leave --ftl" in flashfs("dump", mountpoint, "--ftl", "pagemap", code=2).stderr
    with pytest.raises(RefusedError, match="use header"):
        Control(mountpoint).dump("nonsense")
    flashfs("umount", mountpoint)


LOCKED = """
import sys
from flashfs import inspect
from flashfs.fuse.daemon import keep_out_of_reclaim

def locked_kib():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmLck:"))

refused = keep_out_of_reclaim()
before = locked_kib()
with inspect.held(), inspect.opened(sys.argv[1]) as view:
    print("mlockall" in str(refused), locked_kib() - before, view.device is not None)
"""


@pytest.mark.parametrize("bound", [False, True])
def test_looking_into_an_image_locks_no_memory_of_its_size(chip: Path, bound: bool) -> None:
    """The process that serves has locked what it has; what it maps to look into a large image must stay pageable."""
    if bound:
        with closing(Device.open(chip, ftl="pagemap")) as device:
            device.write(0, bytes(PAGE))
    done = subprocess.run([sys.executable, "-c", LOCKED, chip], capture_output=True, text=True, check=True)
    refused, grown_kib, has_device = done.stdout.split()
    if refused == str(True):
        pytest.skip("needs to be allowed mlockall")
    assert has_device == str(bound)
    assert int(grown_kib) < 32 << 10  # of an image of 64 MiB and more
