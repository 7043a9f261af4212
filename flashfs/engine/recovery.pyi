from dataclasses import dataclass, field
from typing import Any

from flashfs.engine.scan import Scanner
from flashfs.engine.ssd import Ssd

@dataclass(slots=True)
class Step:
    name: str
    about: str
    note: str = ""
    spare_reads: int = 0
    reads: int = 0
    programs: int = 0
    virtual_us: float = 0.0
    wall_ms: float = 0.0

@dataclass(slots=True)
class Report:
    clean: bool = False
    fresh: bool = False
    steps: list[Step] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    alarms: list[str] = field(default_factory=list)

    def summary(self) -> str: ...

class Recovery:
    STEPS: tuple[tuple[str, str], ...]
    readonly: bool
    report: Report
    work: Any

    def __init__(self, ssd: Ssd, readonly: bool = False, repairs: bool = False) -> None: ...
    def run(self) -> Report: ...

class Worker(Scanner):
    def __init__(self, ssd: Any, repairs: bool = False) -> None: ...
    def boot(self) -> Any: ...
    def resolve(self) -> Any: ...
    def nvram(self) -> Any: ...
    def blocks(self) -> Any: ...
    def keep_in_memory(self) -> Any: ...
    def commit(self) -> Any: ...
    @property
    def clean(self) -> bool: ...
    def guarded(self, run: Any) -> Any: ...
    def mark_log(self) -> Any: ...
    def fit(self) -> Any: ...
    def let_go(self) -> Any: ...
