# The door to the engine: what a scheme or a server of somebody else's cimports. What is behind it may move.
from flashfs.engine.buffer cimport WriteBuffer
from flashfs.engine.cache cimport DataCache
from flashfs.engine.metalog cimport MetaLog
from flashfs.engine.mover cimport Mover
from flashfs.engine.parts cimport Cleaning, Engine, Extent, Mapping, Placement, Validity
from flashfs.engine.pool cimport BlockPool
from flashfs.engine.reader cimport Reader
from flashfs.engine.ssd cimport RUN, Ssd
from flashfs.engine.wear cimport WearLevel
from nandimg._nand cimport Nand
