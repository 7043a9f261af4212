"""The verdicts on mutants, in a file of JSON lines: a later verdict replaces an earlier one."""

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
    """The verdict on one mutant. ``digest`` is its module's (of sources, seed and count); ``limit_s``: the seconds'
    worth of items it was to run."""

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
    """The file, read as a whole; a line that was written only in part is ignored."""

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
        """The verdict on a mutant, if still valid: its module is unchanged and, if it survived, its limit was no lower
        than now. ``again``: verdicts of survivors are not valid."""
        found = self.verdicts.get(site.key)
        if found is None or found.digest != digest:
            return None
        stays = found.verdict in ("caught", "time-out")
        return found if stays or (not again and found.limit_s >= limit_s) else None


@dataclass(frozen=True, slots=True)
class Judgement:
    """A person's finding on a survivor: `equivalent` or `gap`, and why."""

    verdict: str
    why: str


class BadJudgement(Exception):
    """The file of judgements cannot be read."""


def judgements(path: Path) -> dict[Key, Judgement]:
    """{key of the mutant: its judgement}; empty without the file. BadJudgement if it cannot be read."""
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
