"""``python -m dockbell``."""

from dockbell.cli import main

main()
