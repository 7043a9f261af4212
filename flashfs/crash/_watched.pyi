from collections.abc import Callable, Iterable
from typing import Any

from nandimg import Cut, FaultyNand
from nandimg._chip import Chip

class WatchedNand(FaultyNand):
    watcher: Any
    def __init__(
        self,
        chip: Chip,
        cuts: Iterable[Cut | None] = (),
        failing: Iterable[int] = (),
        on_sync: Callable[[], Any] | None = None,
        watcher: Any = None,
    ) -> None: ...
    @property
    def still_failing(self) -> frozenset[int]: ...
    def perform_on(self, other: FaultyNand) -> None: ...
