"""The version of dockbell, where every part can read it without importing another."""

from typing import Final

__version__: Final = "0.1.0"
