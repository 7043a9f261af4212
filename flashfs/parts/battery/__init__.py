"""State that a battery keeps in NVRAM, so that a recovery need not scan."""
