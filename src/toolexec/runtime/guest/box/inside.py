"""Python, in the process of the guest itself."""

from __future__ import annotations

import gc
import os
from typing import Any

from ..python.main import Guest
from ..python.stopping import Stopping
from ..python.stream import new_loop, run_program, set_stdin
from . import sources


class Inside:
    """Runs Python programs, one after the other; their names stay."""

    def __init__(self, line: Any, _: Any) -> None:
        self._guest = Guest(line, new_loop)
        self._guest.keep_source = sources.keep
        self._guest.stopping = Stopping(line)

    def prepare(self, warm: bool) -> None:
        """Be ready to run."""
        if warm:
            from .warm import warm_up

            warm_up()
        gc.freeze()  # the end of a run looks through everything that is not

    def run(self, message: dict[str, Any]) -> str:
        """Return the payload of the result, as JSON."""
        payload = message["payload"]
        before = {name: os.environ.get(name) for name in payload.get("env") or {}}
        set_stdin(payload.pop("stdin", None))
        try:
            return run_program(self._guest, payload, message["id"])
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def finish(self) -> None:
        """Note that the result has been sent."""
