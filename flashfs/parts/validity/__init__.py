"""Which pages live, kept in flash: as a bitmap (PVB) or as a log (PVL)."""
