"""What maps that hash share: the packed table of HIDs and page numbers, the hasher, and a table of pairs."""
