from flashfs.engine.recovery.found import Found
from flashfs.engine.recovery.scan import Scanner

class Resolver:
    def __init__(self, found: Found, scanner: Scanner) -> None: ...
