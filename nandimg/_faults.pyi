from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nandimg._chip import Chip
from nandimg._nand import Nand

SHAPES: tuple[str, ...]

@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    shape: str = "before"

class FaultyNand(Nand):
    def __init__(
        self,
        chip: Chip,
        cuts: Iterable[Cut | None] = (),
        failing: Iterable[int] = (),
        on_sync: Callable[[], Any] | None = None,
    ) -> None: ...
    @property
    def chip(self) -> Chip: ...
    @property
    def operations(self) -> int: ...
    @property
    def dead(self) -> bool: ...
    @property
    def lives_left(self) -> int: ...
    def power_on(self) -> None: ...
