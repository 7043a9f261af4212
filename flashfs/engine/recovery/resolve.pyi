from typing import Any

from flashfs.engine.recovery.scan import Scanner

class Resolver(Scanner):
    def __init__(self, ssd: Any, repairs: bool = False) -> None: ...
    def claims(self) -> Any: ...
