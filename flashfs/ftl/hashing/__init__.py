"""What the page maps by hashing share: the packed table of HIDs and page numbers, and the hasher."""
