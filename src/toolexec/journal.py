"""What a journal or an engine of durable runs is written with: its records, its plugin, and what repeats programs.

`JournalPlugin` is what a distribution offers under the entry point group `toolexec.journals`. A `Journal` keeps the
runs that this process works on. A `DurableEngine` runs them elsewhere: its workers make the calls with a `Host`, and
repeat programs with `Replay` and `DurableRunner`. toolexec-temporal is written with these names and those of
`toolexec.sandbox`, and with no others of toolexec's inside. See docs/extending.md, which has an example.

>>> from toolexec.journal import outcome_of, read_outcome
>>> from toolexec import Result
>>> read_outcome(outcome_of(Result("shop:price", 4.5, None))).value
4.5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.backend.secrets import SecretResolver
    from toolexec.cli.options import AsJson, Config, perform_command
    from toolexec.cli.session import Session
    from toolexec.code.deliveries import Deliveries, is_timer
    from toolexec.discovery.index import Index, Registered
    from toolexec.durable.decisions import read_decision
    from toolexec.durable.engine import RESUMED, DurableEngine, QueuedEngine, RecordedEngine
    from toolexec.durable.host import CallSpec, Host, RunSpec, WorkedEngine, Worker, read_args, repeat_here, sent_args
    from toolexec.durable.journal import (
        CallRecord,
        Journal,
        RunKind,
        RunRecord,
        RunState,
        Signal,
        Snapshot,
        Wait,
        WaitKind,
    )
    from toolexec.durable.outcomes import error_from_json, error_to_json, outcome_of, outcome_of_error, read_outcome
    from toolexec.durable.plugin import JOURNAL_API, JournalPlugin
    from toolexec.durable.postgres import PostgresJournal
    from toolexec.durable.queues import Queue, QueueRecord, QueueStore
    from toolexec.durable.record import Record
    from toolexec.durable.recorder import RecordingStore
    from toolexec.durable.replay import TOOK, Replay
    from toolexec.durable.runner import DurableRunner
    from toolexec.durable.schedules import Schedule, Timing
    from toolexec.durable.sqlite import SQLiteJournal
    from toolexec.durable.waits import SETTLE_QUESTION, Waits, approval_of, whole_length
    from toolexec.model.arguments import RefusedArgs
    from toolexec.model.call import ToolCall
    from toolexec.model.declared import Bytes, PathName, Seconds, setting
    from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, to_json_lossy
    from toolexec.model.settings import checked
    from toolexec.process.atomic import replace_files
    from toolexec.process.poll import pauses
    from toolexec.run.repeating import is_repeatable
    from toolexec.run.runner import Runner
else:
    _HOMES = {
        "toolexec.backend.secrets": ("SecretResolver",),
        "toolexec.cli.options": ("AsJson", "Config", "perform_command"),
        "toolexec.cli.session": ("Session",),
        "toolexec.code.deliveries": ("Deliveries", "is_timer"),
        "toolexec.discovery.index": ("Index", "Registered"),
        "toolexec.durable.decisions": ("read_decision",),
        "toolexec.durable.engine": ("RESUMED", "DurableEngine", "QueuedEngine", "RecordedEngine"),
        "toolexec.durable.host": (
            "CallSpec",
            "Host",
            "RunSpec",
            "WorkedEngine",
            "Worker",
            "read_args",
            "repeat_here",
            "sent_args",
        ),
        "toolexec.durable.journal": (
            "CallRecord",
            "Journal",
            "RunKind",
            "RunRecord",
            "RunState",
            "Signal",
            "Snapshot",
            "Wait",
            "WaitKind",
        ),
        "toolexec.durable.outcomes": (
            "error_from_json",
            "error_to_json",
            "outcome_of",
            "outcome_of_error",
            "read_outcome",
        ),
        "toolexec.durable.plugin": ("JOURNAL_API", "JournalPlugin"),
        "toolexec.durable.postgres": ("PostgresJournal",),
        "toolexec.durable.queues": ("Queue", "QueueRecord", "QueueStore"),
        "toolexec.durable.record": ("Record",),
        "toolexec.durable.recorder": ("RecordingStore",),
        "toolexec.durable.replay": ("TOOK", "Replay"),
        "toolexec.durable.runner": ("DurableRunner",),
        "toolexec.durable.schedules": ("Schedule", "Timing"),
        "toolexec.durable.sqlite": ("SQLiteJournal",),
        "toolexec.durable.waits": ("SETTLE_QUESTION", "Waits", "approval_of", "whole_length"),
        "toolexec.model.arguments": ("RefusedArgs",),
        "toolexec.model.call": ("ToolCall",),
        "toolexec.model.declared": ("Bytes", "PathName", "Seconds", "setting"),
        "toolexec.model.json_value": ("JSONDict", "JSONObject", "JSONValue", "to_json_lossy"),
        "toolexec.model.settings": ("checked",),
        "toolexec.process.atomic": ("replace_files",),
        "toolexec.process.poll": ("pauses",),
        "toolexec.run.repeating": ("is_repeatable",),
        "toolexec.run.runner": ("Runner",),
    }
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)

__all__ = [
    "JOURNAL_API",
    "RESUMED",
    "SETTLE_QUESTION",
    "TOOK",
    "AsJson",
    "Bytes",
    "CallRecord",
    "CallSpec",
    "Config",
    "Deliveries",
    "DurableEngine",
    "DurableRunner",
    "Host",
    "Index",
    "JSONDict",
    "JSONObject",
    "JSONValue",
    "Journal",
    "JournalPlugin",
    "PathName",
    "PostgresJournal",
    "Queue",
    "QueueRecord",
    "QueueStore",
    "QueuedEngine",
    "Record",
    "RecordedEngine",
    "RecordingStore",
    "RefusedArgs",
    "Registered",
    "Replay",
    "RunKind",
    "RunRecord",
    "RunSpec",
    "RunState",
    "Runner",
    "SQLiteJournal",
    "Schedule",
    "Seconds",
    "SecretResolver",
    "Session",
    "Signal",
    "Snapshot",
    "Timing",
    "ToolCall",
    "Wait",
    "WaitKind",
    "Waits",
    "WorkedEngine",
    "Worker",
    "approval_of",
    "checked",
    "error_from_json",
    "error_to_json",
    "is_repeatable",
    "is_timer",
    "lazy_names",
    "outcome_of",
    "outcome_of_error",
    "pauses",
    "perform_command",
    "read_args",
    "read_decision",
    "read_outcome",
    "repeat_here",
    "replace_files",
    "sent_args",
    "setting",
    "to_json_lossy",
    "whole_length",
]
