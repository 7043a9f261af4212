from collections.abc import Mapping as Dict
from typing import Any

from _typeshed import ReadableBuffer

from flashfs.engine.contract.extensions import Runs, Sharing
from flashfs.engine.contract.mapping import Mapping
from flashfs.engine.device.ssd import Ssd
from flashfs.parts.python.python_ftl import Plugin

class PyMapping(Mapping):
    def __init__(self, plugin: Plugin, scheme_oob: int, save_most: int, rebuilds: bool) -> None: ...
    @property
    def plugin(self) -> Plugin: ...
    def audit(self) -> bytearray: ...
    def prove(self, raw: bytes, table: ReadableBuffer) -> None: ...
    def share(self, lpa: int, source: int) -> Any: ...

def build(
    ssd: Ssd, name: str, cls: type, options: Dict[str, Any], scheme_oob: int, save_most: int
) -> tuple[Plugin, PyMapping]: ...

class PyRuns(Runs):
    def __init__(self, map: PyMapping) -> None: ...

class PySharing(Sharing):
    def __init__(self, map: PyMapping) -> None: ...
