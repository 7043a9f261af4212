from typing import Any

from flashfs.engine.contract.cleaning import Cleaning

class Greedy(Cleaning):
    def __init__(self, ssd: Any, *_, spares: Any = ...) -> None: ...
