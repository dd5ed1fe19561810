"""Answers as tables that people want to read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich import box
from rich.console import Group, RenderableType
from rich.highlighter import JSONHighlighter
from rich.table import Table
from rich.text import Text

from toolexec.cli.arguments import read_args
from toolexec.cli.terminal import Screen, to_json
from toolexec.model.json_value import JSONObject
from toolexec.model.visible import visible, visible_line

if TYPE_CHECKING:
    from toolexec.backend import BackendStatus
    from toolexec.discovery import Facets, Summary
    from toolexec.exec import ChainResult
    from toolexec.model import ToolAnnotations
    from toolexec.run import StepResult
    from toolexec.run.types import UndoneStep

_MAX_ID: Final = 44
_KIND_WORDS: Final = {"local": "in process"}
_MAX_COUNTS: Final = 15
_MAX_STDERR: Final = 3
_PLAIN_KEY: Final = re.compile(r"\w[\w.-]*")


def plain_table(*columns: tuple[str, Mapping[str, Any]]) -> Table:
    """Return a table with a rule under its head and nothing else around it."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for header, options in columns:
        table.add_column(header, **options)
    return table


def search_table(found: Sequence[Summary]) -> Table:
    """Search results: ID, what it does, where it lives, score."""
    table = plain_table(
        ("Tool", {"overflow": "fold", "max_width": _MAX_ID}),
        ("What it does", {"ratio": 1}),
        ("Where", {"overflow": "fold", "max_width": 20}),
        ("Score", {"justify": "right", "no_wrap": True}),
    )
    table.expand = True
    for summary in found:
        score = f"{summary.score:.2f}" if summary.score is not None else ""
        table.add_row(_id_text(summary.id), _purpose(summary), _where(summary.bindings), Text(score, style="dim"))
    return table


def explained(found: Sequence[Summary]) -> RenderableType:
    """Search results with the words that matched: where these are, and what they added to the score."""
    parts: list[RenderableType] = []
    for summary in found:
        head = _id_text(summary.id)
        head.append(f"  {summary.score:.2f}" if summary.score is not None else "", style="dim")
        parts.append(head)
        why = summary.explanation
        if why is None:
            continue
        for match in why.matches:
            led = "" if match.kind == "word" else f" {match.kind} {visible_line(match.word)}"
            line = f"  {match.weight:6.2f}  {visible_line(match.query_word)}{led}  in {', '.join(match.fields) or '-'}"
            parts.append(Text(line, overflow="fold"))
        if why.snippet:
            parts.append(Text(f"          {visible_line(why.snippet)}", style="dim", overflow="fold"))
    return Group(*parts)


def facets_table(counts: Facets) -> Table:
    """Return how many tools there are of each kind, the most frequent first."""
    table = plain_table(("Facet", {}), ("Counts", {"ratio": 1, "overflow": "fold"}))
    table.expand = True
    rows = {"tools": {"all": counts.total}, "namespaces": counts.namespaces, "tags": counts.tags}
    rows |= {"backends": counts.backends, "hints": counts.hints}
    for name, values in rows.items():
        shown = [f"{visible_line(value) or '(none)'} {count}" for value, count in list(values.items())[:_MAX_COUNTS]]
        table.add_row(name, Text(", ".join(shown) + (", …" if len(values) > _MAX_COUNTS else "")))
    return table


def listing(found: Sequence[Summary], limit: int | None) -> RenderableType:
    """Tools (one or more) under their namespaces with counts, at most *limit* (None: all) for each."""
    groups: dict[str, list[Summary]] = {}
    for summary in found:
        groups.setdefault(summary.namespace, []).append(summary)
    width = min(max(len(summary.id) for summary in found), _MAX_ID) + 2
    parts: list[RenderableType] = []
    for namespace, tools in groups.items():
        head = Text(visible_line(namespace) or "(no namespace)", style="bold")
        head.append(f"  {_count(len(tools), 'tool')}", style="dim not bold")
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(width=width, overflow="fold")
        table.add_column(ratio=1)
        for summary in tools[:limit]:
            table.add_row(Text("  ").append_text(_id_text(summary.id)), _purpose(summary))
        parts += [head, table]
        if limit is not None and len(tools) > limit:
            rest = f"  … and {len(tools) - limit} more; --all shows them"
            parts.append(Text(rest, style="dim"))
        parts.append(Text())
    total = f"{_count(len(found), 'tool')} in {_count(len(groups), 'namespace')}"
    return Group(*parts, Text(total, style="dim"))


def backends_table(statuses: Sequence[BackendStatus]) -> RenderableType:
    """Return every backend: kind, state, tools, transport, and the server or the reason why it is not available."""
    table = plain_table(
        ("Backend", {"overflow": "fold"}),
        ("Status", {"no_wrap": True}),
        ("Tools", {"justify": "right"}),
        ("Transport", {"no_wrap": True}),
        ("Details", {"overflow": "fold"}),
    )
    for status in statuses:
        ready = Text("● ready", style="green") if status.available else Text("● unavailable", style="red")
        if not status.enabled:
            ready = Text("○ switched off", style="dim")
        transport = str(
            status.info.get("transport") or status.info.get("provider") or _KIND_WORDS.get(status.kind, status.kind)
        )
        tools = str(status.tools) if status.available else "-"
        table.add_row(
            Text(visible_line(status.name), style="cyan"), ready, tools, Text(visible_line(transport)), _details(status)
        )
    return table


def _details(status: BackendStatus) -> Text:
    lines: list[Text] = []
    if status.reason and status.enabled:
        lines.append(Text(visible_line(status.reason, 300), style="red"))
    facts = [str(status.info[key]) for key in ("server", "url") if key in status.info]
    facts += [f"protocol {status.info['protocol']}"] if "protocol" in status.info else []
    facts += [str(status.info["login"])] if "login" in status.info else []
    facts += _attempts(status.info)
    facts += _figures(status.info)
    if facts:
        lines.append(Text(visible_line(" · ".join(facts)), style="dim"))
    last = str(status.info.get("last_error", ""))
    if last and last != status.reason:
        lines.append(Text(f"last error: {visible_line(last, 300)}", style="yellow"))
    ends = str(status.info.get("stderr", "")).splitlines()[-_MAX_STDERR:]
    lines += [Text(f"stderr: {visible_line(line, 200)}", style="dim") for line in ends]
    left_out = list(status.skipped.items())[:5]
    lines += [
        Text(f"left out {visible_line(name, 60)}: {visible_line(why, 120)}", style="yellow") for name, why in left_out
    ]
    return Text("\n").join(lines)


def _attempts(info: JSONObject) -> list[str]:
    """Return how often a server was restarted, or a definition could not be read, and how many attempts are left."""
    found = [f"restarted {info['restarts']} times"] if "restarts" in info else []
    if "failed_readings" in info:
        found.append(f"{info['failed_readings']} of {_count(info['readings'], 'reading')} failed")
    left = info.get("restarts_left", info.get("retries_left"))
    return found + ([f"{_count(left, 'attempt')} left"] if left is not None else [])


def _figures(info: JSONObject) -> list[str]:
    """Return the calls, the errors among them and the median latency."""
    calls, errors = int(info.get("calls", 0)), int(info.get("errors", 0))
    found = [_count(calls, "call") + (f", {errors} failed" if errors else "")] if calls else []
    return found + ([f"{info['latency_ms']} ms"] if "latency_ms" in info else [])


def chain_table(result: ChainResult) -> Table:
    """Return a chain's steps: state, duration, and the start of the value or the error."""
    table = plain_table(
        ("#", {"justify": "right"}),
        ("Tool", {"overflow": "fold", "max_width": _MAX_ID}),
        ("Status", {"no_wrap": True}),
        ("Time", {"justify": "right", "no_wrap": True}),
        ("Value", {"no_wrap": True, "overflow": "ellipsis", "ratio": 1}),
    )
    table.expand = True
    for step in result.steps:
        table.add_row(str(step.index), _step_name(step), *_step_cells(step))
    return table


def _step_name(step: StepResult) -> Text:
    text = _id_text(step.tool_id)
    if step.name:
        text.append(f" as {visible_line(step.name)}", style="dim")
    return text


def _step_cells(step: StepResult) -> tuple[Text, Text, Text]:
    if step.skipped:
        return Text("- skipped", style="dim"), Text(), Text()
    attempts = f" ({step.attempts} attempts)" if step.attempts > 1 else ""
    time = Text(duration_text(step.duration), style="dim")
    if step.error is not None:
        return Text(f"✗ failed{attempts}", style="red"), time, Text(visible_line(str(step.error)), style="red")
    return Text(f"✓ ok{attempts}", style="green"), time, preview(step.value)


def show_undone(screen: Screen, undone: Sequence[UndoneStep]) -> None:
    """Print what became of the effects of what failed, on stderr."""
    for each in undone:
        if each.ok:
            screen.note(f"✓ undid {each.index} {each.tool_id} with {each.undo_id}")
        else:
            screen.note(f"✗ did not undo {each.index} {each.tool_id}: {visible_line(each.reason)}", style="red")


def preview(value: Any) -> Text:
    """Return the start of a value on one line."""
    return Text(visible_line(value if isinstance(value, str) else _compact(value), 500))


def value_text(value: Any) -> Text:
    """Return a value in full: text as it is, anything else as indented JSON."""
    if isinstance(value, str):
        return Text(visible(value).rstrip("\n"))
    text = Text(visible(to_json(value, ascii_only=False)))
    JSONHighlighter().highlight(text)
    return text


def content_lines(content: Iterable[JSONObject]) -> list[str]:
    """Return one line for each part of a reply that is not text: its kind, type and size."""
    lines: list[str] = []
    for part in content:
        kind = part.get("type")
        if kind == "text":
            continue
        inner = part.get("resource")
        source: JSONObject = inner if isinstance(inner, Mapping) else part
        data, text = source.get("data", source.get("blob")), source.get("text")
        facts = [str(source[key]) for key in ("mimeType", "uri") if source.get(key)]
        if isinstance(data, str):
            facts.append(_size(len(data.rstrip("=")) * 3 // 4))  # base64: four characters are three bytes
        elif isinstance(text, str):
            facts.append(_size(len(text.encode())))
        lines.append(visible_line(f"[{kind}] {', '.join(facts)}", 300))
    return lines


def command_line(tool_id: str, args: JSONObject, schema: Any, config: Sequence[Path] = ()) -> str:
    """Return a `toolexec run` line, ready for a shell: key=value words if they read back as *args*, else one JSON
    object.
    """
    words = ["toolexec", "run", tool_id, *(word for path in config for word in ("-c", str(path)))]
    pairs = [f"{key}={value if isinstance(value, str) else _compact(value)}" for key, value in args.items()]
    simple = all(_PLAIN_KEY.fullmatch(key) and not isinstance(args[key], dict | list) for key in args)
    words += pairs if simple and read_args(pairs, schema) == args else [_compact(args)]
    return shlex.join(visible(word) for word in words)


def hints_text(hints: ToolAnnotations) -> str:
    """Return what the annotations say, in words."""
    words = [word for word, is_so in (("read-only", hints.read_only), ("idempotent", hints.idempotent)) if is_so]
    words += ["destructive"] if hints.destructive else []
    return ", ".join(words)


def duration_text(seconds: float) -> str:
    """Return a duration with a unit that suits it."""
    if seconds < 0.001:
        return f"{seconds * 1_000_000:.{1 if seconds < 0.000_01 else 0}f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _id_text(tool_id: str) -> Text:
    """Return an ID with its namespace held back."""
    namespace, colon, name = visible_line(tool_id).partition(":")
    return Text.assemble((f"{namespace}:", "dim"), (name, "cyan")) if colon else Text(namespace, style="cyan")


def _purpose(summary: Summary) -> Text:
    text = Text(visible_line(summary.short_description) or "(no description)")
    if summary.annotations.destructive:
        text.append("  destructive", style="red")
    elif summary.annotations.read_only:
        text.append("  read-only", style="green")
    if summary.produces is not None:
        text.append(f"\nin its result: {visible_line(summary.produces, 200)}", style="dim")
    if summary.unavailable:
        text.append(f"\nunavailable: {visible_line(summary.unavailable, 200)}", style="red")
    return text


def _where(bindings: Sequence[str]) -> Text:
    kinds = [binding.partition(":") for binding in bindings]
    names = [kind if kind == name else f"{kind} {name}" for kind, _, name in kinds]
    return Text(visible_line(", ".join(names)), style="dim")


def _compact(value: Any) -> str:
    return to_json(value, indent=None, ascii_only=False)


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _size(count: int) -> str:
    if count < 1000:
        return _count(count, "byte")
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
