"""The process with the mutants compiled in: learns which item reaches which mutant, then runs each with its items.

    python runner.py TASK.json

is started by `python tools/mutants` in the copy of the project. Everything is imported and every test collected once.
"""

from __future__ import annotations

import json
import mmap
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from mutants import suites
from mutants.build import LIBRARY, MOST
from mutants.children import Ended, Job, Switch, run
from mutants.sites import Site
from mutants.state import State, Verdict
from mutants.suites import Item

SLOWEST_S = 20.0  #: items that take longer without a mutant are left out
SHARES = {"crash": 0.5, "tests": 0.35, "check": 0.15}  #: shares of the time for one mutant
CHAMPIONS = 12  #: items that run first because they have caught most for their time
FORK_S = 0.02  #: overhead of an item, so that the shortest do not always come first
PATIENCE, GRACE_S = 8, 6.0  #: the time limit of an item: so many times its time without a mutant, plus so much
SAVED_EVERY = 100  #: items between saves of what is learned
REACH = "reach.json"
REACHED = "reached"


class Task:
    """The task that the parent process wrote."""

    def __init__(self, path: Path) -> None:
        given = json.loads(path.read_text())
        self.state = State(Path(given["state"]))
        self.limit_s = float(given["limit_s"])
        self.jobs = int(given["jobs"])
        self.again = bool(given["again"])
        self.tests = list(given["tests"])
        self.digests: dict[str, str] = given["digests"]
        self.mutants = {int(number): Site(**site) for number, site in given["mutants"].items()}

    def left(self) -> dict[int, Site]:
        """The mutants without a valid verdict."""
        return {
            number: site for number, site in self.mutants.items()
            if self.state.known(site, self.digests[site.module], self.limit_s, self.again) is None
        }  # fmt: skip


def say(text: str) -> None:
    print(text, file=sys.__stderr__, flush=True)


class Runner:
    """A plugin of pytest, which calls it instead of running the tests that it collected."""

    def __init__(self, task: Task, switch: Switch, table: mmap.mmap) -> None:
        self.task, self.switch, self.table = task, switch, table
        self.items: list[Item] = []
        self.seconds: dict[str, float] = {}
        self.reaching: dict[int, list[Item]] = {}
        self.caught = Counter(
            f"{one.suite} {one.item}" for one in task.state.verdicts.values() if one.verdict == "caught"
        )
        self.collected = False

    def pytest_configure(self) -> None:
        without_chance()

    def pytest_runtestloop(self, session: Any) -> bool:
        if session.testsfailed:
            return True
        self.collected = True
        self.items = [*suites.check_items(), *suites.crash_items(), *suites.test_items(session)]
        self.learn(session.config)
        self.nobody(session.config)
        left = self.task.left()
        say(f"{len(left)} of {len(self.task.mutants)} mutants are to meet {self.task.limit_s:.0f} s of items each")
        jobs = (self.job(number) for number in left if self.reaching.get(number))
        for number in left:
            if not self.reaching.get(number):
                self.note(Ended(Job(number, [], [], 0), "unreached", None, "no item comes by", 0))
        for done, ended in enumerate(run(jobs, self.task.jobs, self.switch, session.config), 1):
            self.note(ended)
            site = self.task.mutants[ended.job.number]
            say(f"{done} {ended.job.number} {site.module} {site.function}: {site.change}: {ended.result} "
                f"{ended.item.id if ended.item else ''} {ended.seconds:.1f} s")  # fmt: skip
        return True

    # --- which item reaches which mutant

    def learn(self, config: Any) -> None:
        """Run each item once with no mutant chosen, and note which mutants it reaches. An earlier result is valid while
        neither the modules nor the item's file have changed."""
        path = Path(REACH)
        known: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        keys = {item.id: self.key_of(item) for item in self.items}
        new = [item for item in self.items if known.get(item.id, {}).get("key") != keys[item.id]]
        say(f"{len(self.items)} items, {len(new)} of them to be run without a mutant")
        for n, (item, ended) in enumerate(zip(new, self.one_by_one(new, config), strict=True), 1):
            reached = [at for at, byte in enumerate(self.table[:MOST]) if byte]
            known[item.id] = {"key": keys[item.id], "seconds": ended.seconds, "reached": reached,
                              "wrong": "" if ended.result == "passed" else ended.why}  # fmt: skip
            if known[item.id]["wrong"]:
                say(f"left out: {item.id}: {ended.why}")
            if n % SAVED_EVERY == 0:
                say(f"{n} of {len(new)} items")
                path.write_text(json.dumps(known))
        path.write_text(json.dumps({id: known[id] for id in keys}))
        for item in sorted(self.items, key=lambda item: float(known[item.id]["seconds"])):
            if not known[item.id]["wrong"]:
                self.seconds[item.id] = float(known[item.id]["seconds"])
                for number in known[item.id]["reached"]:
                    self.reaching.setdefault(number, []).append(item)

    def one_by_one(self, items: list[Item], config: Any) -> Iterator[Ended]:
        for item in items:
            self.table[:MOST] = bytes(MOST)
            yield from run(iter([Job(0, [item], [SLOWEST_S], SLOWEST_S)]), 1, self.switch, config)

    def key_of(self, item: Item) -> str:
        hashed = sha256(json.dumps(self.task.digests).encode())
        if item.source:
            hashed.update(Path(item.source).read_bytes())
        return hashed.hexdigest()[:16]

    def nobody(self, config: Any) -> None:
        """Run all items with no mutant chosen, in the order in which mutants run them. SystemExit if one fails."""
        items = list({item.id: item for reached in self.reaching.values() for item in reached}.values())
        items.sort(key=lambda item: self.seconds[item.id])
        for ended in run(iter([self.planned(0, items)]), 1, self.switch, config):
            if ended.result != "passed":
                raise SystemExit(f"without a mutant, {ended.item.id if ended.item else ''}: {ended.why}")

    # --- one mutant

    def job(self, number: int) -> Job:
        """First the items that caught most for their time. Then those of all suites, each with its share of the time;
        within a suite, each family of items has an equal share, its cheapest items first."""
        of_family: dict[str, float] = defaultdict(float)
        of_suite: dict[str, float] = defaultdict(float)
        turns: dict[str, float] = {}
        for item in self.reaching[number]:
            of_family[item.family] += self.seconds[item.id] + FORK_S
            turns[item.id] = of_family[item.family]
        for item in sorted(self.reaching[number], key=lambda item: turns[item.id]):
            of_suite[item.suite] += (self.seconds[item.id] + FORK_S) / SHARES[item.suite]
            turns[item.id] = of_suite[item.suite]
        caught = [item for item in self.reaching[number] if self.caught[item.id]]
        caught.sort(key=lambda item: -self.caught[item.id] / (self.seconds[item.id] + FORK_S))
        for item in caught[:CHAMPIONS]:
            turns[item.id] = 0
        return self.planned(number, sorted(self.reaching[number], key=lambda item: turns[item.id]))

    def planned(self, number: int, items: list[Item]) -> Job:
        """A job of as many items as the limit has time for, at least one."""
        chosen, total = [], 0.0
        for item in items:
            total += self.seconds[item.id]
            if chosen and total > self.task.limit_s:
                break
            chosen.append(item)
        due = [PATIENCE * self.seconds[item.id] + GRACE_S for item in chosen]
        return Job(number, chosen, due, PATIENCE * self.task.limit_s + GRACE_S)

    def note(self, ended: Ended) -> None:
        site = self.task.mutants[ended.job.number]
        if ended.result == "failed" and ended.item is not None:
            self.caught[ended.item.id] += 1
        words = {"passed": "survived", "failed": "caught"}
        self.task.state.add(Verdict(
            *site.key, digest=self.task.digests[site.module], number=ended.job.number,
            verdict=words.get(ended.result, ended.result), suite=ended.item.suite if ended.item else "",
            item=ended.item.name if ended.item else "", why=" ".join(ended.why.split())[:300],
            seconds=round(ended.seconds, 2), limit_s=self.task.limit_s,
        ))  # fmt: skip


def without_chance() -> None:
    """Make Hypothesis draw the same examples each time, without a database."""
    from hypothesis import settings

    settings.register_profile("mutants", database=None, derandomize=True, deadline=None)
    settings.load_profile("mutants")


def main() -> int:
    import pytest

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no child is left
    task = Task(Path(sys.argv[1]))
    with Path(REACHED).open("r+b") as file:
        table = mmap.mmap(file.fileno(), MOST)
    switch = Switch(Path(LIBRARY).resolve())
    import flashfs

    assert Path(flashfs.__file__).is_relative_to(Path.cwd()), f"{flashfs.__file__} is not the copy in {Path.cwd()}"
    runner = Runner(task, switch, table)
    words = ["-q", "--capture=no", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--timeout=0",
             "-m", "not slow and not mount",
             *[f"--ignore={name}" for name in suites.LEFT_OUT], *task.tests]  # fmt: skip
    code = pytest.main(words, plugins=[runner])
    return 0 if runner.collected else int(code) or 1


if __name__ == "__main__":
    sys.exit(main())
