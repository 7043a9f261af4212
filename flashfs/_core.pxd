# The door to the engine: what a scheme or a server of somebody else's cimports. What is behind it may move. Whoever
# needs translation pages cimports flashfs.engine.paged beside it (flashfs.engine.demand for pages of 4-byte entries),
# and is C++ then.
from flashfs.engine.agreement cimport Agreement
from flashfs.engine.buffer cimport WriteBuffer
from flashfs.engine.cache cimport DataCache
from flashfs.engine.defaults cimport Greedy, PageBitmap, PageTable, Streams
from flashfs.engine.metalog cimport MetaLog
from flashfs.engine.mover cimport Mover
from flashfs.engine.parts cimport (
    FOREIGN,
    LIVE,
    SUPERSEDED,
    Cleaning,
    Engine,
    Extent,
    Mapping,
    Owner,
    Placement,
    Validity,
)
from flashfs.engine.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_MAP,
    CAUSE_RECOVERY,
    KIND_TRANSLATION,
    KIND_USER,
    NONE,
    OOB_ENGINE,
    STATE_BAD,
    STATE_CLOSED,
    STATE_FREE,
    STATE_META,
    STATE_OPEN,
    STATE_PENDING,
    STREAM_GC,
    STREAM_HOST,
    STREAM_MAP,
    BlockPool,
    Oob,
    oob_kind,
    oob_lpa,
    oob_unpack,
)
from flashfs.engine.reader cimport Reader
from flashfs.engine.ssd cimport RUN, Ssd
from flashfs.engine.wear cimport WearLevel
from nandimg._nand cimport Nand
