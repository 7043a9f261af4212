"""Measurements that are run once and kept, in addition to `flashfs replay` and `flashfs sweep`: `python bench`."""
