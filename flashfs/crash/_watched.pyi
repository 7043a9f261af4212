from collections.abc import Callable, Iterable
from typing import Any

from nandimg import Cut, FaultyNand, Nand

class WatchedNand(FaultyNand):
    watcher: Any

    def __init__(
        self,
        inner: Nand,
        cuts: Iterable[Cut | None] = (),
        failing: Iterable[int] = (),
        on_sync: Callable[[], Any] | None = None,
        watcher: Any = None,
    ) -> None: ...
    def inherit(self, other: FaultyNand) -> None: ...
    @property
    def pending_words(self) -> int: ...
    @property
    def still_failing(self) -> frozenset[int]: ...
    def perform_on(self, other: FaultyNand) -> None: ...
    @property
    def about_to_erase(self) -> Any: ...
