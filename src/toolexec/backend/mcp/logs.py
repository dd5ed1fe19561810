"""Keep secrets of servers out of what the MCP SDK and its HTTP client log: they log whole messages and whole URLs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeAlias

_Cleaner: TypeAlias = Callable[[str], str]

_QUOTING: Final = ("mcp.client.sse", "mcp.client.streamable_http")
_LOGGERS: Final = (
    *_QUOTING,
    "httpx2",
    "httpcore2.connection",
    "httpcore2.http11",
    "httpcore2.http2",
    "httpcore2.proxy",
    "httpcore2.socks",
)


class _Discretion(logging.Filter):
    """Takes out of a record what the servers that are connected just now want taken out."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._cleaners: tuple[_Cleaner, ...] = ()

    def begin(self, cleaner: _Cleaner) -> None:
        with self._lock:
            if not self._cleaners:
                for name in _LOGGERS:
                    logging.getLogger(name).addFilter(self)
            self._cleaners = (*self._cleaners, cleaner)

    def end(self, cleaner: _Cleaner) -> None:
        with self._lock:
            self._cleaners = tuple(other for other in self._cleaners if other is not cleaner)
            if not self._cleaners:
                for name in _LOGGERS:
                    logging.getLogger(name).removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        """Always true; the record is changed where it holds a secret."""
        shown = said = record.getMessage()
        for clean in self._cleaners:
            shown = clean(shown)
        if shown != said:
            record.msg, record.args = shown, None
        if record.name in _QUOTING and record.exc_info and record.exc_info[1] is not None:
            # An exception may quote a part of what could not be read, and so a part of a secret: its type must do.
            record.msg, record.args = f"{shown} ({type(record.exc_info[1]).__name__})", None
            record.exc_info = record.exc_text = None
        return True


_discretion = _Discretion()


@contextmanager
def discreet_logs(cleaner: Callable[[str], str]) -> Generator[None, None, None]:
    """In the block, *cleaner* sees all that the SDK's HTTP transports and their HTTP client log, and gives what is
    logged instead; exceptions of the former are logged by type alone."""

    def clean(text: str) -> str:
        return cleaner(text)

    _discretion.begin(clean)
    try:
        yield
    finally:
        _discretion.end(clean)
