from flashfs.engine.recovery.found import Found

class Follower:
    def __init__(self, found: Found) -> None: ...
