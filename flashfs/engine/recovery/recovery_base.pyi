from collections.abc import Callable
from typing import Any

from flashfs.engine.recovery.found import Found
from flashfs.engine.recovery.resolve import Resolver
from flashfs.engine.recovery.scan import Scanner

class RecoveryBase:
    def join(self, found: Found, scanner: Scanner, resolver: Resolver) -> None: ...
    def steps(self) -> list[tuple[str, str, str, str, Callable[[], Any]]]: ...
    def committed(self) -> None: ...
