"""Maps whose entries lie in translation pages in flash, with a cache of them in DRAM."""
