# Declarations of C libraries, and nothing else.
