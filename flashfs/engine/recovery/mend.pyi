from flashfs.engine.recovery.resolve import Resolver

class Mender(Resolver): ...

PASSES: int
