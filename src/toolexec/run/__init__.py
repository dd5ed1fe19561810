"""One tool call, start to finish."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.model.call import Progress, ToolCall
    from toolexec.model.events import StreamEvent
    from toolexec.run.chain import ChainStep, run_chain
    from toolexec.run.gate import Gate, GatePart
    from toolexec.run.layer import Layer, ObserverLayer
    from toolexec.run.layers import Timeout, Trace, TraceEvent, TraceHook
    from toolexec.run.resolve import Resolver
    from toolexec.run.runner import DefaultRunner, OutputValidation, Runner, ThreadRunner
    from toolexec.run.types import Result, StepResult
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.model.call": ("Progress", "ToolCall"),
            "toolexec.model.events": ("StreamEvent",),
            "toolexec.run.chain": ("ChainStep", "run_chain"),
            "toolexec.run.gate": ("Gate", "GatePart"),
            "toolexec.run.layer": ("Layer", "ObserverLayer"),
            "toolexec.run.layers": ("Timeout", "Trace", "TraceEvent", "TraceHook"),
            "toolexec.run.resolve": ("Resolver",),
            "toolexec.run.runner": ("DefaultRunner", "OutputValidation", "Runner", "ThreadRunner"),
            "toolexec.run.types": ("Result", "StepResult"),
        },
    )

__all__ = [
    "ChainStep",
    "DefaultRunner",
    "Gate",
    "GatePart",
    "Layer",
    "ObserverLayer",
    "OutputValidation",
    "Progress",
    "Resolver",
    "Result",
    "Runner",
    "StepResult",
    "StreamEvent",
    "ThreadRunner",
    "Timeout",
    "ToolCall",
    "Trace",
    "TraceEvent",
    "TraceHook",
    "run_chain",
]
