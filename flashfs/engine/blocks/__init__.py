"""Blocks: their states and streams, what a page's OOB says, and which of them cleaning may take."""
