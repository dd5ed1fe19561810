"""How much stack the calling thread has: a guest that is let in deeper than that would take the process with it."""

from __future__ import annotations

import ctypes
import sys
import threading

__all__ = ["thread_stack_bytes"]

_known = threading.local()


def thread_stack_bytes() -> int | None:
    """The size of this thread's stack; None where the system does not tell (it is asked on Linux)."""
    try:
        size: int | None = _known.size
    except AttributeError:
        size = _known.size = _ask() if sys.platform == "linux" else None
    return size


def _ask() -> int | None:
    library = ctypes.CDLL(None)
    attributes = ctypes.create_string_buffer(256)  # larger than the C library's structure anywhere
    if library.pthread_getattr_np(ctypes.c_size_t(threading.get_ident()), attributes):
        return None
    size = ctypes.c_size_t()
    failed = library.pthread_attr_getstacksize(attributes, ctypes.byref(size))
    library.pthread_attr_destroy(attributes)
    return None if failed else size.value
