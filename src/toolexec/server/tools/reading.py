"""The tools that read about tools: describe_tool, list_tool_examples, stubs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from toolexec.code.names import ToolNames
from toolexec.code.stub_dialects import is_javascript
from toolexec.discovery.docs import MAX_NOTES, MAX_SUMMARY, DetailLevel, ToolDoc
from toolexec.discovery.examples import MAX_EXAMPLE_DESCRIPTION, MAX_EXAMPLE_TITLE, MAX_RESULT_HINT, ToolExample
from toolexec.discovery.index import Index, get_tool
from toolexec.discovery.many import are_long
from toolexec.discovery.preparing import off_loop_if_long
from toolexec.errors import InputValidationError, ToolExecError, Violation
from toolexec.model.json_value import JSONDict
from toolexec.model.tool import Tool
from toolexec.model.visible import visible, visible_line
from toolexec.run.reading import select
from toolexec.server.tools.base import MetaCall, MetaReply, MetaTool
from toolexec.server.tools.describing import arguments_of, described
from toolexec.server.tools.errors import error_object
from toolexec.server.tools.schemas import (
    ANY,
    EXAMPLES,
    FLAG,
    OBJECT,
    TEXT,
    TEXTS,
    closed,
    count,
    listing,
    text,
    unlisted,
)
from toolexec.server.tools.starting import settle
from toolexec.server.tools.values import as_json, tool_data
from toolexec.server.tools.wording import public_reason

_EXAMPLES: Final = 5
_MAX_REF: Final = 500
_MAX_STUBBED: Final = 100
_MAX_STUB_CHARS: Final = 32_000
_MAX_OMITTED: Final = 20
_MAX_PRODUCED: Final = 20
_MAX_GLANCE: Final = 8000
"""Bytes of what repeats a part of the schema."""
_MAX_PLACE: Final = 200


async def _describe(call: MetaCall) -> MetaReply:
    args = call.args
    wanted = [*([args["tool_id"]] if "tool_id" in args else ()), *args.get("tool_ids", ())]
    if not wanted:
        missing = Violation(path="", keyword="required", message="tool_id is required, or tool_ids")
        raise InputValidationError([missing], tool_id="describe_tool", op="validate_input")
    level: DetailLevel = args.get("detail_level", "schema")
    if "path" in args:
        return await _part(call, wanted[0], args["path"])
    docs: list[JSONDict] = []
    parts: list[str] = []
    for tool_id in dict.fromkeys(wanted):
        try:
            doc = await call.ex.get_tool_doc(tool_id, level)
        except ToolExecError as error:
            if len(wanted) == 1:
                raise
            docs.append({"id": tool_id, "error": error_object(error)})
            parts.append(f"# {visible_line(docs[-1]['error']['message'], MAX_NOTES)}")
            continue
        data, words = await _described(call, doc, level)
        docs.append(data)
        parts.append(words)
    value = docs[0] if "tool_ids" not in args else {"tools": docs}
    if args.get("as_json"):
        return MetaReply(value=value, structured=True)
    return MetaReply(value=value, text="\n".join(parts), once=True)


async def _part(call: MetaCall, tool_id: str, path: str) -> MetaReply:
    """Return a part of the schema of a tool's arguments: the value at a path such as `properties.filter`."""
    doc = await call.ex.get_tool_doc(tool_id, "schema")
    tool = doc.tool
    assert tool is not None
    shown = await off_loop_if_long([tool], lambda: call.results.show(select(arguments_of(tool), path), call.origin))
    return MetaReply(value={"id": doc.id, "summary": "", "part": shown.value}, text=as_json(shown.value), once=True)


async def _described(call: MetaCall, doc: ToolDoc, level: str) -> tuple[JSONDict, str]:
    """Return a description as JSON and as text; a long schema is read in a thread."""
    shown = call.args.get("examples_max", _EXAMPLES if level == "full" else 0)
    examples = call.ex.visible()[1].list_examples(doc.id, int(shown)) if shown else []
    beside: JSONDict = {}
    if level == "full":
        await call.ex.links_ready()
        beside = {"producers": producers} if (producers := _producers(doc)) else {}
    tools = [doc.tool] if doc.tool is not None else []
    as_text = level != "full" and not call.args.get("as_json")

    def work() -> tuple[JSONDict, str]:
        data = _data(call, doc, examples, schemas=not (as_text and are_long(tools))) | beside
        return data, described(call, data, doc.tool) if as_text else as_json(data) if level == "full" else ""

    return await off_loop_if_long(tools, work)


def _data(call: MetaCall, doc: ToolDoc, examples: Sequence[ToolExample], *, schemas: bool = True) -> JSONDict:
    """Return a description as JSON, with the *schemas* of the tool or without."""
    value: JSONDict = {"id": doc.id, "summary": visible(doc.summary, MAX_SUMMARY)}
    if doc.tool is not None:
        value["tool"] = tool_data(call, doc.tool, schemas=schemas)
    elif doc.described is not None:
        value |= _hints(doc.described)
    value |= {key: part for key, part in _more(call, doc, examples).items() if part}
    if (arguments := doc.example_call) is not None:
        value["exampleCall"] = {"tool_id": doc.id, "args": call.results.show(arguments, call.origin, _MAX_GLANCE).value}
    return value


def _hints(tool: Tool) -> JSONDict:
    hints = tool.annotations.to_mcp()
    hints.pop("title", None)
    return {"annotations": hints} if hints else {}


def _more(call: MetaCall, doc: ToolDoc, examples: Sequence[ToolExample]) -> JSONDict:
    """Return what a description has beside the tool; a part too large to be shown is an outline."""
    top = doc.schema_info.to_dict()
    return {
        "schemaInfo": {key: call.results.show(part, call.origin, _MAX_GLANCE).value for key, part in top.items()},
        "notes": visible(doc.notes, MAX_NOTES),
        "examples": [_example(example) for example in examples],
        "externalRefs": [visible_line(ref, _MAX_REF) for ref in doc.external_refs],
        "unavailable": public_reason(doc.unavailable) if doc.unavailable else "",
    }


def _producers(doc: ToolDoc) -> dict[str, list[str]]:
    """For each argument the tools that give it, each with where in its result that is: `github:list_issues [].id`."""
    found: dict[str, list[str]] = {}
    for name, producers in list(doc.producers.items())[:_MAX_PRODUCED]:
        found[visible_line(name, _MAX_PLACE)] = [
            visible_line(f"{producer.tool_id} {producer.path or ''}".strip(), _MAX_PLACE) for producer in producers
        ]
    return found


def _example(example: ToolExample) -> JSONDict:
    data = example.to_dict()
    data["title"] = visible_line(example.title, MAX_EXAMPLE_TITLE)
    data["description"] = visible(example.description, MAX_EXAMPLE_DESCRIPTION)
    if "resultHint" in data:
        data["resultHint"] = visible(example.result_hint, MAX_RESULT_HINT)
    return data


async def _examples(call: MetaCall) -> MetaReply:
    tool_id = call.args["tool_id"]
    if call.ex.index.find(tool_id) is None:
        await settle(call.ex)
    _, docs = call.ex.visible()
    found = docs.list_examples(tool_id, int(call.args.get("max", _EXAMPLES)))
    return MetaReply(value={"examples": [_example(example) for example in found]})


async def _stubs(call: MetaCall) -> MetaReply:
    await settle(call.ex)
    index, _ = call.ex.visible()
    wanted = _wanted(index, call.args.get("tool_ids", ()), call.args.get("namespaces", ()))
    if (learned := call.ex.learned) is not None:
        wanted = [learned.with_output(tool) for tool in wanted]
    language = str(call.args.get("language") or call.ex.options.default_language)
    stubs, shown = _within(wanted, index, language)
    value: JSONDict = {"stubs": stubs, "tools": [tool.id for tool in shown]}
    rest = wanted[len(shown) :]
    if rest:
        more = ", …" if len(rest) > _MAX_OMITTED else ""
        named = ", ".join(tool.id for tool in rest[:_MAX_OMITTED])
        value["note"] = f"{len(rest)} more would be too long; ask for them by id: {named}{more}"
    elif not shown:
        value["note"] = "no such tools; list_namespaces and search_tools tell what there is"
    mark = "//" if is_javascript(language) else "#"
    return MetaReply(value=value, text=stubs if not rest else f"{stubs}\n{mark} {value['note']}\n")


def _wanted(index: Index, tool_ids: Sequence[str], namespaces: Sequence[str]) -> list[Tool]:
    """Return the tools asked for, each once; all when none are named. Raises as `get_tool` does."""
    found = [get_tool(index, tool_id).tool for tool_id in tool_ids]
    if namespaces or not tool_ids:
        found += [entry.tool for entry in index.tools() if not namespaces or entry.tool.namespace in namespaces]
    return list({tool.id: tool for tool in found}.values())


def _within(tools: Sequence[Tool], index: Index, language: str) -> tuple[str, Sequence[Tool]]:
    """Stubs of as many of *tools* as there is room for, and which those are."""
    from toolexec.code.stubs import stubs_in

    names, shown = ToolNames(index), tools[:_MAX_STUBBED]
    text = stubs_in(language, shown, names=names)
    while len(text) > _MAX_STUB_CHARS and len(shown) > 1:
        shown = shown[: max(len(shown) * _MAX_STUB_CHARS // (len(text) + 1), 1)]
        text = stubs_in(language, shown, names=names)
    return text, shown


_DOC: Final = {
    "id": TEXT,
    "summary": TEXT,
    "annotations": OBJECT,
    "tool": OBJECT,
    "schemaInfo": closed(dict.fromkeys(("required", "types", "defaults"), ANY)),
    "notes": TEXT,
    "examples": EXAMPLES,
    "externalRefs": TEXTS,
    "exampleCall": closed({"tool_id": ANY, "args": ANY}),
    "unavailable": TEXT,
    "producers": OBJECT,
    "part": ANY,
    "tools": listing(OBJECT),
}
_MAX_DESCRIBED: Final = 30

DESCRIBE_TOOL: Final = MetaTool(
    name="describe_tool",
    description="The arguments and results of a tool, or of tool_ids; full adds notes, examples and a call to copy.",
    input_schema=closed(
        {
            "tool_id": TEXT,
            "tool_ids": {**TEXTS, "minItems": 1, "maxItems": _MAX_DESCRIBED},
            "detail_level": {"enum": ["summary", "schema", "full"]},
            "path": unlisted(text("a part of the arguments' schema: properties.filter")),
            "examples_max": unlisted(count(0, _EXAMPLES)),
            "as_json": unlisted(FLAG),
        }
    ),
    output_schema={**closed(_DOC), "anyOf": [{"required": ["id", "summary"]}, {"required": ["tools"]}]},
    handle=_describe,
    cause="describe",
)

LIST_TOOL_EXAMPLES: Final = MetaTool(
    name="list_tool_examples",
    description="Example calls of one tool.",
    input_schema=closed({"tool_id": TEXT, "max": count(1, _EXAMPLES, _EXAMPLES)}, ["tool_id"]),
    output_schema=closed({"examples": EXAMPLES}, ["examples"]),
    handle=_examples,
    cause="describe",
)

STUBS: Final = MetaTool(
    name="stubs",
    description="Typed stubs of tools for programs: in Python, or in TypeScript for JavaScript.",
    input_schema=closed(
        {
            "tool_ids": {**TEXTS, "maxItems": _MAX_STUBBED},
            "namespaces": {**TEXTS, "maxItems": _MAX_OMITTED},
            "language": text("of the program"),
        }
    ),
    output_schema=closed({"stubs": TEXT, "tools": TEXTS, "note": TEXT}, ["stubs", "tools"]),
    handle=_stubs,
    cause="describe",
)
