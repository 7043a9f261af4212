from flashfs.engine.recovery.found import Found

class Mender:
    def __init__(self, found: Found) -> None: ...

PASSES: int
