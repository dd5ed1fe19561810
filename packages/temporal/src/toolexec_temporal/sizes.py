"""How much goes to Temporal at a time: it takes two megabytes in one payload, and four in one message."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolexec.errors import InputValidationError, InvalidResultError, Violation
from toolexec.journal import JSONDict, error_to_json

MAX_BYTES: Final = 1_800_000
"""How long a payload may be, compressed, with room for what encrypts it."""
ADVICE: Final = "set large_directory in [durable.temporal] for callers and workers, or have tools return less"
_PART: Final = 1_000_000
_CHUNK: Final = 64 << 10
_LARGE_ARGS: Final = 10_000


def size_of(data: object) -> int:
    """Return how many bytes something has as JSON."""
    return len(json.dumps(data))


def fits(data: object) -> bool:
    """Return whether something goes into one payload, compressed as the codec does it."""
    text = json.dumps(data).encode()
    return len(text) <= MAX_BYTES or _compresses(text)


def _compresses(text: bytes) -> bool:
    """Return whether text goes into one payload once it is compressed; stop as soon as it does not, as a workflow may
    not take two seconds."""
    packer, size = zlib.compressobj(1), 0
    for start in range(0, len(text), _CHUNK):
        size += len(packer.compress(text[start : start + _CHUNK]))
        if size > MAX_BYTES:
            return False
    return size + len(packer.flush()) <= MAX_BYTES


def excess_of(tool_id: str, args: JSONDict) -> InputValidationError | None:
    """Return why arguments do not go into one payload; None for those that do."""
    if fits(args):
        return None
    text = f"{size_of(args) / 1e6:.1f} MB is more than Temporal takes at once; pass where the data is"
    violation = Violation(path="", keyword="maxLength", message=text)
    return InputValidationError([violation], tool_id=tool_id, op="validate_input")


def first_part(answers: Mapping[str, Any]) -> JSONDict:
    """Return as many of the answers as go into one message, and one at least."""
    part: JSONDict = {}
    room = _PART
    for name, answer in answers.items():
        room -= size_of(answer)
        if room < 0 and part:
            break
        part[name] = answer
    return part


def page_of(calls: Sequence[JSONDict], start: int) -> JSONDict:
    """Return the `calls` from *start* on that go into one message, one at least, and where the `next` begin, if any
    do."""
    part = first_part({str(number): call for number, call in enumerate(calls[start:], start)})
    after = start + len(part)
    return {"calls": [*part.values()], "next": after if after < len(calls) else None}


def lightened(result: JSONDict) -> JSONDict:
    """Return the result of a chain without the values of its steps, which their calls have, and large arguments."""
    steps = result.get("steps")
    if not steps:
        return result
    light = [
        {**step, "value": None, "args": step["args"] if size_of(step["args"]) < _LARGE_ARGS else {}} for step in steps
    ]
    return {**result, "steps": light}


def with_values(result: JSONDict, calls: Sequence[Any]) -> JSONDict:
    """Return a result that `lightened` has made with the values of its steps."""
    values = {call.step: (call.outcome or {}).get("value") for call in calls}
    steps = [{**step, "value": values.get(str(step["index"]))} for step in result.get("steps") or ()]
    return {**result, "steps": steps} if steps else result


def fitting_end(ended: JSONDict, run_id: str) -> JSONDict:
    """Return how a run ended, with what a history takes: who wants the rest asks for the calls, page by page."""
    if fits(ended):
        return ended
    lighter = {"state": ended["state"], "result": lightened(ended["result"]), "paged": True}
    if fits(lighter):
        return lighter
    error = InvalidResultError(
        f"the run {run_id} came to {size_of(ended['result']) / 1e6:.1f} MB, more than Temporal keeps in a "
        f"history; {ADVICE}",
        op="normalize",
        details={"run_id": run_id},
    )
    return {"state": "failed", "result": {"raised": error_to_json(error)}, "paged": True}
