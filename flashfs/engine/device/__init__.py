"""A request's way: bytes to pages, write buffer, append, read, cleaning, wear levelling, the metadata log."""
