"""Rules around a call, each a runner around a runner."""

from toolexec.run.layers.timeout import Timeout
from toolexec.run.layers.trace import Trace, TraceEvent, TraceHook

__all__ = ["Timeout", "Trace", "TraceEvent", "TraceHook"]
