# pyright: reportMissingImports=false
"""The module that the builder of the component imports: what it leaves behind in memory is little.

The code of a module is freed once it has run. That of `app.py` is gone when `settle` fills the holes in memory.
"""

from toolexec_world import WitWorld, settle

__all__ = ["WitWorld"]

settle()
