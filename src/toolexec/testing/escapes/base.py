"""What an escape is, and how one is judged."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult

LIMITS = Limits(
    max_tool_calls=20,
    max_chain_steps=10,
    cpu_ms=20_000,
    memory_bytes=128 << 20,
    pids=64,
    disk_bytes=8 << 20,
)
"""What a hostile program is granted."""

ISOLATING: Final = frozenset({"wasm", "container", "gvisor", "vm"})
"""The isolations in which every program may run; under any other one those that are `isolated` may not."""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One run of a hostile program, over: what came back, and what the host saw.

    `result` is None when the sandbox raised `raised` instead. `seen` is what the host noticed by itself while the
    program ran, each a sentence: a program connected to it, a file changed, a process died. `isolation` is what
    surrounded the program.
    """

    result: CodeResult | None
    raised: BaseException | None
    tools: Tools
    seen: list[str] = field(default_factory=list[str])
    isolation: str = ""

    @property
    def value(self) -> Any:
        """The program's value."""
        return self.result.value if self.result is not None else None

    @property
    def said(self) -> str:
        """Everything that the program got out of its sandbox, as one text: its value, output, files, the arguments of
        its tool calls, and the sandbox's error."""
        parts: list[str] = [repr(self.raised)] if self.raised is not None else []
        result = self.result
        if result is not None:
            parts += [_text(result.value), result.stdout, result.stderr]
            parts += [f"{name}: {content.decode('utf-8', 'replace')}" for name, content in result.files.items()]
            if result.error is not None:
                parts += [str(result.error), _text(result.error.to_dict())]
        parts += [f"{record.tool_id} {_text(record.args)}" for record in self.tools.tool_calls()]
        return "\n".join(parts)


Check: TypeAlias = Callable[[Attempt], str]
"""Says what got out, or "" when the sandbox held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Escape:
    """A hostile program, in one or more languages.

    `tries` says what it is after. In the text of `programs`, by language, `@NAME@` stands for a fact about the host;
    see `Site.facts`. `check` is its own judge, beside those that judge every program. `timeout` is in seconds.
    One that is `isolated` never runs where nothing surrounds it: `run_battery` refuses that.
    """

    name: str
    tries: str
    programs: Mapping[str, str]
    check: Check = lambda attempt: ""
    timeout: float = 5.0
    limits: Limits = LIMITS
    allowed: tuple[str, ...] | None = ("escape:echo", "escape:nap", "escape:large", "escape:take")
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    isolated: bool = False


def code_of(attempt: Attempt) -> str:
    """Return the code of the error that a run ended with; "" when it ended well."""
    if attempt.raised is not None:
        return str(getattr(attempt.raised, "code", type(attempt.raised).__name__))
    error = attempt.result.error if attempt.result is not None else None
    return error.code if error is not None else ""


def ends_with(*codes: str) -> Check:
    """Return a judge of how the run must end: with an error of one of these codes ("" is none)."""

    def check(attempt: Attempt) -> str:
        code = code_of(attempt)
        if code in codes:
            return ""
        return f"the run ended with {code or 'no error'}, not with {' or '.join(each or 'none' for each in codes)}"

    return check


def gives(*values: Any) -> Check:
    """Return a judge of the value: one of these, or that of a run that failed."""

    def check(attempt: Attempt) -> str:
        if code_of(attempt) or attempt.value in values:
            return ""
        return f"the value is {str(attempt.value)[:200]!r}"

    return check


def all_of(*checks: Check) -> Check:
    """Return the first objection of several judges."""
    return lambda attempt: next((found for check in checks if (found := check(attempt))), "")


def _text(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return repr(type(value))
