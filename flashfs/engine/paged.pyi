from typing import Any

from flashfs.engine.parts import Mapping
from flashfs.engine.translation import Directory

class PagedMapping(Mapping):
    @property
    def store(self) -> Any: ...
    @property
    def directory(self) -> PageDirectory: ...
    @property
    def rebuilds(self) -> int: ...
    @property
    def strict(self) -> bool: ...

class PageDirectory(Directory):
    def ppas(self) -> Any: ...
