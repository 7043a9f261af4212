"""``python -m flashfs``: the command where no script is installed."""

from flashfs.cli import main

main()
