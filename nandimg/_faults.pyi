from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from nandimg._filter import NandFilter
from nandimg._nand import Nand

SHAPES: tuple[str, ...]
BASIC_SHAPES: tuple[str, ...]

@dataclass(frozen=True, slots=True)
class Cut:
    at: int
    shape: str = "before"
    words: int | None = None

class FaultyNand(NandFilter):
    def __init__(
        self,
        inner: Nand,
        cuts: Iterable[Cut | None] = (),
        failing: Iterable[int] = (),
        on_sync: Callable[[], Any] | None = None,
        on_cut: Callable[[int, str], Any] | None = None,
    ) -> None: ...
    def rearm(self, inner: Nand, cut: Cut | None = None) -> None: ...
    @property
    def operations(self) -> int: ...
    @property
    def dead(self) -> bool: ...
    @property
    def lives_left(self) -> int: ...
    @property
    def stored_words(self) -> int: ...
    def log_stores(self) -> None: ...
    def forget_stores(self) -> None: ...
