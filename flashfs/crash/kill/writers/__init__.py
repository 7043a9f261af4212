"""The programs that work on a file system while the device under it is killed. Each runs as a script, in a process of
its own, and knows nothing of flashfs."""
