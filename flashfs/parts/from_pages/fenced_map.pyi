from typing import Any

from flashfs.parts.paged.cached_map import CachedMap

class FencedMap(CachedMap):
    def __init__(self, ssd: Any, *_, fenced: bool = True, **__) -> None: ...
    @property
    def fence_writes(self) -> int: ...
    @property
    def spared_writes(self) -> int: ...
