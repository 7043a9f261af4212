from flashfs.engine.recovery.found import Found
from flashfs.engine.recovery.log_reader import LogReader
from flashfs.engine.recovery.recovery_base import RecoveryBase
from flashfs.engine.recovery.resolve import Resolver

class BlockStates:
    def __init__(self, found: Found, log: LogReader, resolver: Resolver, rebuilder: RecoveryBase) -> None: ...
    def blocks(self) -> str: ...
