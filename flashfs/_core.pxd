# The entry to the engine, for cimports of schemes and servers outside this package. What it names may move to another
# module. A scheme with translation pages also cimports flashfs.parts.paged.paged_map (flashfs.parts.paged.demand_map
# for pages of 4-byte entries), and must then be compiled as C++.
from flashfs.parts.defaults.map_check cimport MapCheck
from flashfs.engine.device.buffer cimport WriteBuffer
from flashfs.engine.device.cache cimport DataCache
from flashfs.parts.defaults.greedy cimport Greedy
from flashfs.parts.defaults.page_bitmap cimport PageBitmap
from flashfs.parts.defaults.page_table cimport PageTable
from flashfs.parts.defaults.streams cimport Streams
from flashfs.engine.device.metalog cimport MetaLog
from flashfs.engine.device.mover cimport Mover
from flashfs.engine.contract.cleaning cimport Cleaning
from flashfs.engine.contract.engine cimport Engine
from flashfs.engine.contract.mapping cimport Mapping
from flashfs.engine.contract.owner cimport FOREIGN, LIVE, SUPERSEDED, Owner
from flashfs.engine.contract.extent cimport RUN, Extent
from flashfs.engine.contract.placement cimport Placement
from flashfs.engine.contract.validity cimport Validity
from flashfs.engine.blocks.pool cimport (
    CAUSE_GC,
    CAUSE_HOST,
    CAUSE_MAP,
    CAUSE_RECOVERY,
    CAUSE_WEAR,
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
    STREAM_WEAR,
    BlockPool,
    Oob,
    oob_kind,
    oob_lpa,
    oob_unpack,
)
from flashfs.engine.device.reader cimport Reader
from flashfs.engine.device.ssd cimport Ssd
from flashfs.engine.device.wear cimport WearLevel
from nandimg._nand cimport Nand
