"""The guest for Python: runs programs inside of a sandbox and gives them `tools`.

Standard library only, and nothing newer than Python 3.9: it runs in the Python of whatever sandbox it is put into.
"""

from .main import start

__all__ = ["start"]
