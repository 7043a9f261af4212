"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# `su` leaves the last two out
os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: its idle threads spin, in each process of a test

import costs
import hypothesis
import pytest
from browser import Browser, installed

gc.disable()  # until all tests are collected: what is made until then stays

MANY = 200  # descriptors: a chip in memory has one, and its memory
left = 0  # of them after the last time: whatever it is that holds these


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--guard", action="store_true", help="fail when the tests have become dearer (tests/costs.py)")
    parser.addoption("--fresh", action="store_true", help="hypothesis draws other cases each time")
    parser.addoption("--part", help="K/N: only the K-th of N parts of the tests, each about as dear")
    parser.addoption("--write-durations", action="store_true", help="write tests/durations.json anew")


def pytest_configure(config: pytest.Config) -> None:
    """``make test`` has the same cases each time; what is new is looked for by ``make test-all`` and campaigns."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # a shell's job in the background; what a test starts is none
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("fixed", derandomize=True)
    hypothesis.settings.load_profile("default" if config.getoption("--fresh") else "fixed")
    config.pluginmanager.register(costs.Meter())
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(costs.Guard(config.getoption("--guard"), config.getoption("--write-durations")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    costs.longest_first(items)
    if config.getoption("--part"):
        items[:] = costs.part_of(items, config.getoption("--part"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What was collected is never garbage: gone through again and again, it was a twentieth of what tests take."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Devices that a test dropped without closing them are cycles (parts know their engine): away with them."""
    global left
    if open_now() > left + MANY:
        gc.collect()
        left = open_now()


def open_now() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture(scope="session", autouse=True)
def patience() -> Iterator[None]:
    """For what answers within a second or two on a machine that does nothing else. What waits goes on as soon as it
    has."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("fuse.status.ANSWER_S", "fuse.users.FILES_S", "fuse.mounts.DETACH_S", "crash.kill.bench.DYING_S",
                     "crash.workload.mounted_image.PATIENCE_S"):  # fmt: skip
            patch.setattr(f"flashfs.{name}", 60.0)
        patch.setattr("flashfs.fuse.daemon.LOOK_S", 20.0)  # a namespace of the tests beside has all mounts at first
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all tests of a file; skips by name where no browser is installed."""
    if installed() is None:
        pytest.skip("needs a browser (package chromium)")
    with Browser() as one:
        yield one
