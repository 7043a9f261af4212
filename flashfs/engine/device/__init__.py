"""The path of a request: bytes to pages, write buffer, append, read, cleaning, wear levelling, the metadata log."""
