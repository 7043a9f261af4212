"""Programs that verify what they wrote, on each file system, in seconds; and what an idle daemon takes. `make soak` has
the long forms."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from stand import Stand, lacks

from flashfs.ftl import SCHEMES
from flashfs.fuse import SERVERS

sys.path.append(str(Path(__file__).parents[2] / "tools"))
import soak

pytestmark = pytest.mark.mount
Stands = Callable[..., Stand]
FTLS = list(SCHEMES)


@pytest.mark.parametrize("kind", list(soak.PROGRAMS), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("fs", "ftl"), [(fs, FTLS[i % len(FTLS)]) for i, fs in enumerate(soak.SIZES_MIB)])
def test_programs_find_what_they_wrote(
    stand: Stands, need_loop: None, fs: str, ftl: str, kind: Callable[[Path, int], str]
) -> None:
    if (missing := lacks(fs, *soak.PROGRAMS[kind])) is not None:
        pytest.skip(missing)
    said = soak.work(stand(soak.SIZES_MIB[fs], ftl), fs, 1, [kind])
    print("; ".join(said))


@pytest.mark.parametrize("server", list(SERVERS))
def test_an_idle_mount_takes_no_processor_time(stand: Stands, server: str) -> None:
    one = stand(16, "pagemap", server)
    assert any(soak.idle_ticks(one, 3.0) == 0 for _ in range(5))  # others ask it who it is, now and then
    one.unmount()


@pytest.mark.slow
def test_an_idle_minute(stand: Stands) -> None:
    one = stand(16, "slimftl")
    assert soak.idle_ticks(one, soak.IDLE_S) == 0
    one.unmount()


def test_requests_leave_memory_as_it_was(stand: Stands) -> None:
    if (missing := lacks("ext4", "fio")) is not None:
        pytest.skip(missing)
    one = stand(80, "pagemap")
    soak.hammer(one, 10_000)
    before = soak.anonymous_kib(one.pid)
    for _ in range(5):  # more threads that meet take more of malloc's arenas, once
        soak.hammer(one, 40_000)
        grown, before = soak.anonymous_kib(one.pid) - before, soak.anonymous_kib(one.pid)
        if grown <= 512:
            break
    assert grown <= 512
    one.unmount()
