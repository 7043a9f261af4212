"""Traces: what a host asked of a disk, recorded from a mount or read from elsewhere, and replayed."""
