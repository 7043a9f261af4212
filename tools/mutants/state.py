"""What is known of each mutant, in a file of JSON lines: a later verdict takes an earlier one's place."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutants.sites import Site

EQUIVALENT, GAP = "equivalent", "gap"
VERDICTS = ("caught", "time-out", "survived", "unreached")
Key = tuple[str, str, str, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one mutant fared. ``digest`` is its module's (sources, seed, how many); ``limit_s`` how many seconds' worth
    of items it had to meet."""

    module: str
    function: str
    text: str
    change: str
    digest: str
    number: int
    verdict: str
    suite: str
    item: str
    why: str
    seconds: float
    limit_s: float

    @property
    def key(self) -> Key:
        return self.module, self.function, self.text, self.change


class State:
    """The file, read whole; broken off in the middle of a line, that line does not count."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.verdicts: dict[Key, Verdict] = {}
        lines = path.read_text().splitlines() if path.is_file() else []
        for line in lines:
            try:
                verdict = Verdict(**json.loads(line))
            except (json.JSONDecodeError, TypeError):
                continue
            self.verdicts[verdict.key] = verdict

    def add(self, verdict: Verdict) -> None:
        self.verdicts[verdict.key] = verdict
        with self.path.open("a") as out:
            out.write(json.dumps(asdict(verdict)) + "\n")

    def known(self, site: Site, digest: str, limit_s: float, again: bool) -> Verdict | None:
        """The verdict on a mutant, if it still holds: its module is as it was, and, of one that survived, it met as
        much as it would now. ``again``: those that survived are to meet everything once more."""
        found = self.verdicts.get(site.key)
        if found is None or found.digest != digest:
            return None
        stays = found.verdict in ("caught", "time-out")
        return found if stays or (not again and found.limit_s >= limit_s) else None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What somebody found who looked at a survivor: `equivalent` or `gap`, and why."""

    verdict: str
    why: str


class BadJudgement(Exception):
    """The file of judgements cannot be read."""


def judgements(path: Path) -> dict[Key, Judgement]:
    """{what names the mutant: what was found}; empty without the file."""
    if not path.is_file():
        return {}
    try:
        rows: list[dict[str, Any]] = tomllib.loads(path.read_text()).get("mutant", [])
        found = {
            (row["module"], row["function"], row["text"], row["change"]): Judgement(row["verdict"], row["why"])
            for row in rows
        }
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise BadJudgement(f"{path}: {error}") from None
    for key, one in found.items():
        if one.verdict not in (EQUIVALENT, GAP) or not one.why.strip():
            raise BadJudgement(f"{path}: {' '.join(key)}: a verdict is {EQUIVALENT} or {GAP}, with why")
    return found
