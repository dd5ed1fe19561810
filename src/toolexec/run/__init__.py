"""One tool call, start to finish."""

from toolexec.model.call import Progress, ToolCall
from toolexec.model.events import StreamEvent
from toolexec.run.chain import ChainStep, run_chain
from toolexec.run.gate import Gate, GatePart
from toolexec.run.layer import Layer, ObserverLayer
from toolexec.run.layers import Timeout, Trace, TraceEvent, TraceHook
from toolexec.run.resolve import Resolver
from toolexec.run.runner import DefaultRunner, OutputValidation, Runner, ThreadRunner
from toolexec.run.types import Result, StepResult

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
