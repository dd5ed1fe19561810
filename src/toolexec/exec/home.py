"""Where an `Exec` is at home: the event loop, and the process, that its backends and sandboxes belong to."""

from __future__ import annotations

import asyncio

from toolexec.errors import ConfigurationError
from toolexec.model.forks import forks
from toolexec.run.large import ON_LOOP


def closed_error() -> ConfigurationError:
    """Return the error of all that is asked of an Exec after it was closed."""
    return ConfigurationError("this Exec is closed; make a new one")


class Home:
    """The event loop and the process of the first use of what is bound to them: connections, sandboxes, processes.

    Python functions are bound to neither. What is cannot be shared: it would hang, or end the work of the other one.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._forks = forks.count

    def enter(self) -> None:
        """Make the running loop the home, or check that it is; raises ConfigurationError when another one is."""
        loop = asyncio.get_running_loop()
        if ON_LOOP.get():  # its calls are made elsewhere, by a loop that is at home
            return
        if self._loop is None or (self._loop.is_closed() and self._forks == forks.count):
            self._loop, self._forks = loop, forks.count
            return
        self.check_process()
        if self._loop is not loop:
            raise ConfigurationError(
                "this Exec is used by another event loop, which its servers and sandboxes belong to; make an Exec for "
                "each loop, or share one between threads by its blocking methods: exec.sync"
            )

    def check_process(self) -> None:
        """Raises ConfigurationError in a process that was forked from the one where the home is."""
        if self.is_left:
            raise ConfigurationError(
                "this Exec was in use when the process was forked, and its threads, servers and sandboxes have stayed "
                "in the parent; make a new Exec in the child"
            )

    @property
    def is_left(self) -> bool:
        """Whether this is a child of the process where the home is: nothing here is the child's to use or to close."""
        return self._loop is not None and self._forks != forks.count
