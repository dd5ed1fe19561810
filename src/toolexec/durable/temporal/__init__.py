"""Durable runs, and sandboxes, on Temporal: for many machines. It needs the extra `temporal`."""

from toolexec.durable.sandboxes import provide_sandboxes as _provide_sandboxes
from toolexec.durable.temporal.backend import TemporalBackend
from toolexec.durable.temporal.engine import TemporalEngine
from toolexec.durable.temporal.settings import TemporalSettings

__all__ = ["TemporalBackend", "TemporalEngine", "TemporalSettings"]

_provide_sandboxes()  # for runtimes that are made without an Exec
