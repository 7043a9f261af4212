"""The device without its FTL. contract/: the interfaces that a scheme implements; blocks/: block states, shared by both
sides; device/: the paths of a request; recovery/: recovery after a crash; views/: what tools show. Schemes cimport
``flashfs._core``."""
