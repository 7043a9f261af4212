"""Finds again what was acknowledged: scans the pages written since the checkpoint, decides which of them count."""
