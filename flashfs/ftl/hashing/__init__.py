"""Shared by the maps that hash: the packed table of HIDs and page numbers, the hasher, and a table of pairs."""
