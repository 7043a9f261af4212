"""The device engine that all FTLs share: block pool, the four parts and their defaults, reading, cleaning, wear
levelling, write buffer, data cache, metadata log, recovery. ``flashfs._core`` is the door that schemes cimport."""
