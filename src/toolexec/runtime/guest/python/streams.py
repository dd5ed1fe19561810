"""Where a program's prints go."""

from __future__ import annotations

import io
from typing import Any

from .channel import Channel

_CHUNK = 8192


class Printed(io.TextIOBase):
    """A text stream that posts what is written to the host, line by line (to stderr at
    once), and stops at a limit."""

    encoding = "utf-8"
    errors = "strict"
    _size = 0  # these are here, as each program gets two of them and most print nothing
    _dropped = 0
    _buffer: _Bytes | None = None

    def __init__(self, channel: Channel, stream: str, limit: int) -> None:
        self._channel = channel
        self._stream = stream
        self._left = limit
        self._parts: list[str] = []

    @property
    def buffer(self) -> _Bytes:
        """Takes bytes, as text in UTF-8."""
        if self._buffer is None:
            self._buffer = _Bytes(self)
        return self._buffer

    def reconfigure(self, **settings: Any) -> None:
        """Change nothing: text goes to the host as it is."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: Any) -> int:
        """Take *text*; it reaches the host at the end of the line, or when much has come together."""
        if not isinstance(text, str):
            raise TypeError("write() argument must be str, not " + type(text).__name__)
        size = len(text)
        if self._left <= 0:
            self._dropped += size
            return size
        self._parts.append(text)
        self._size += size
        if self._size >= _CHUNK or text.endswith("\n") or self._stream == "stderr":
            self.flush()
        return size

    def flush(self) -> None:
        """Send what there is."""
        if not self._parts:
            return
        text = "".join(self._parts)
        self._parts = []
        self._size = 0
        kept = text[: self._left]
        self._left -= len(kept)
        self._dropped += len(text) - len(kept)
        self._channel.post("print", {"text": kept.encode("utf-8", "replace").decode(), "stream": self._stream})

    def finish(self) -> None:
        """Send what there is, and how much was over the limit."""
        if self._buffer is not None:
            self._buffer.finish()
        if self._parts:
            self.flush()
        if self._dropped:
            self._channel.post("print", {"text": "", "stream": self._stream, "dropped": self._dropped})


class _Bytes(io.BufferedIOBase):
    """The stream below a text stream."""

    def __init__(self, text: Printed) -> None:
        super().__init__()
        import codecs

        self._text = text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        """Take *data*; what is not UTF-8 becomes the replacement character."""
        if isinstance(data, str):
            raise TypeError("a bytes-like object is required, not 'str'")
        data = bytes(data)
        self._text.write(self._decoder.decode(data))
        return len(data)

    def flush(self) -> None:
        self._text.flush()

    def finish(self) -> None:
        """Write what the end of the data left open."""
        self._text.write(self._decoder.decode(b"", final=True))
