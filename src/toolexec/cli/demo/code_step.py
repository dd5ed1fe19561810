"""The demo's step in code mode: a program in the sandbox makes many tool calls and hands back one value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from rich.table import Table
from rich.text import Text

from toolexec.cli.building import prepare_sandbox, watch_build
from toolexec.cli.demo.stage import Outcome, Stage
from toolexec.cli.tables import duration_text, plain_table, value_text
from toolexec.model.json_value import JSONDict

if TYPE_CHECKING:
    from toolexec.code.types import CodeResult

PROGRAM: Final = """\
import asyncio, re
from collections import Counter

log = await tools.git.git_log(repo_path=".", max_count=48)

async def files_of(commit):
    shown = await tools.git.git_show(repo_path=".", revision=commit)
    return re.findall(r"^\\+\\+\\+ b/(.+)", shown, re.MULTILINE)

commits = re.findall(r"^Commit: (\\w+)", log, re.MULTILINE)
changed = Counter()
for files in await asyncio.gather(*map(files_of, commits)):
    changed.update(files)

title = f"Most changed files in {len(commits)} commits"
counts = dict(changed.most_common(6))
return await tools.demo.bar_chart(title=title, counts=counts)"""
_AT_BEST: Final = 3
"""The trips of a model that calls the same tools itself, and calls all at once that do not need each other."""


async def code(stage: Stage) -> Outcome:
    """Run a program in the sandbox, and compare what the model writes and reads with calling the tools itself."""
    with watch_build(stage.screen) as view:
        await prepare_sandbox(stage.ex, view, language="python", profile="")
    result = await stage.ex.execute_code(PROGRAM)
    result.raise_for_error()
    calls = result.tool_calls
    asked = sum(_size({"name": call.tool_id, "arguments": call.args}) for call in calls)
    answered = sum(_size(call.value) for call in calls)
    data = {
        "value": result.value,
        "toolCalls": len(calls),
        "durationMs": round(result.duration * 1000, 3),
        "backend": result.backend.to_dict() if result.backend is not None else None,
        "withoutCode": {"roundTripsAtBest": _AT_BEST, "bytesWritten": asked, "bytesRead": answered},
        "withCode": {"roundTrips": 1, "bytesWritten": _size(PROGRAM), "bytesRead": _size(result.value)},
    }
    return Outcome(data, (value_text(result.value), Text(), _comparison(result, data), _note(result)))


def _size(value: object) -> int:
    """Bytes of JSON, as a model would get them."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def _comparison(result: CodeResult, data: JSONDict) -> Table:
    without, within = data["withoutCode"], data["withCode"]
    table = plain_table(
        ("What the model pays", {}),
        ("calling each tool itself", {"justify": "right"}),
        ("with this program", {"justify": "right"}),
    )
    table.add_row("Round trips", f"{_AT_BEST} to {len(result.tool_calls)}", Text("1", style="bold"))
    for label, key in (("It writes", "bytesWritten"), ("It reads", "bytesRead")):
        table.add_row(label, f"{without[key]:,} bytes", Text(f"{within[key]:,} bytes", style="bold"))
    return table


def _note(result: CodeResult) -> Text:
    kind = result.backend.kind if result.backend is not None else ""
    text = f"✓ {len(result.tool_calls)} tool calls from a {kind} sandbox · {duration_text(result.duration)}"
    return Text(f"{text} · every call was checked and traced like any other", style="dim")
