"""The calls in a model's message, in whatever form a vendor writes them, as JSON data or as objects of its package; and
the answers to them, in the form that each vendor takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from toolexec.model.json_value import JSONDict, JSONObject, JSONValue, refuse_constant

CallKind: TypeAlias = Literal["chat", "responses", "responses-custom", "responses-search", "anthropic", "gemini"]

_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_MAX_ARGUMENTS: Final = 4 << 20
_MISSING: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorCall:
    """One call. `problem` says what is wrong with its arguments, if anything; `echo` goes into the answer as it is.
    `text_only`: the answer goes to a program, which takes no pictures."""

    kind: CallKind
    id: str
    name: str
    args: JSONDict = field(default_factory=JSONDict)
    problem: str = ""
    echo: JSONObject = field(default_factory=JSONDict)
    text_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A part that is not text: its media type, and its bytes in base64."""

    mime_type: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What there is to say to a call. `value` is JSON, `text` the same as text; `found` are the names and forms of the
    tools that a search has found."""

    value: JSONValue
    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()
    found: tuple[tuple[str, JSONObject], ...] | None = None


def openai_calls(message: object) -> list[VendorCall]:
    """Return the calls of Chat Completions (`tool_calls`) and of Responses (`function_call` and the like), in order.

    *message* is a completion, a response, a message, a list of calls or output items, or a single one; what is not a
    call for this side is left out.
    """
    choices = _field(message, "choices")
    if isinstance(choices, list | tuple):
        message = _field(choices[0], "message") if choices else None
    for name in ("tool_calls", "output"):
        listed = _field(message, name)
        if isinstance(listed, list | tuple):
            return _each(listed, _openai_call)
        if listed is None and name == "tool_calls" and _field(message, "role", None) is not None:
            return []
    return _each(_listed(message), _openai_call)


def anthropic_calls(message: object) -> list[VendorCall]:
    """Return the `tool_use` blocks of a message, of a list of blocks, or a single one; what the vendor's own servers do
    (`server_tool_use`) is left out."""
    content = _field(message, "content")
    return _each(content if isinstance(content, list | tuple) else _listed(message), _anthropic_call)


def gemini_calls(message: object) -> list[VendorCall]:
    """Return the `functionCall` parts of a response (its first candidate), of a content, or of a list of parts or
    calls."""
    candidates = _field(message, "candidates")
    if isinstance(candidates, list | tuple):
        message = _field(candidates[0], "content") if candidates else None
    content = _field(message, "content")
    if content is not _MISSING and content is not None:
        message = content
    parts = _field(message, "parts")
    return _each(parts if isinstance(parts, list | tuple) else _listed(message), _gemini_call)


def reply(call: VendorCall, answer: Answer) -> JSONDict:
    """Return the answer in the form that fits the call."""
    if call.kind == "anthropic":
        return _anthropic(call, answer)
    if call.kind == "gemini":
        return _gemini(call, answer)
    if call.kind == "chat":
        return {"role": "tool", "tool_call_id": call.id, "content": _with_notes(answer)}
    if call.kind == "responses-custom":
        return {"type": "custom_tool_call_output", "call_id": call.id, "output": _with_notes(answer)}
    if call.kind == "responses-search":
        forms = [{**form, "defer_loading": True} for _, form in answer.found or ()]
        shape: JSONDict = {"type": "tool_search_output", "call_id": call.id, "execution": "client"}
        return {**shape, "status": "completed", "tools": forms}
    return {"type": "function_call_output", "call_id": call.id, "output": _responses(call, answer), **call.echo}


def media_of(part: JSONObject) -> Media | None:
    """Return a picture, a sound, or a resource that comes with its bytes; None for another part."""
    holder, data = part, part.get("data")
    if part.get("type") == "resource" and isinstance(part.get("resource"), Mapping):
        holder, data = part["resource"], part["resource"].get("blob")
    if not isinstance(data, str):
        return None
    kind = holder.get("mimeType")
    return Media(mime_type=kind if isinstance(kind, str) and kind else "application/octet-stream", data=data)


def notes_of(part: Mapping[str, object]) -> list[str]:
    """Return what a part says that is neither among the strings that make the value nor a medium."""
    if part.get("type") == "resource_link":
        return [f"[{part.get('name', 'resource')}: {part.get('uri', '')}]"]
    resource = part.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return [f"[{resource.get('uri', 'resource')}]\n{resource['text']}"]
    return []


# -- one call -------------------------------------------------------------------------------------------------------


def _openai_call(item: object) -> VendorCall | None:
    kind = _text(item, "type")
    function = _field(item, "function", None)
    if function is not None:
        args, problem = _arguments(_field(function, "arguments", None))
        return VendorCall(kind="chat", id=_text(item, "id"), name=_text(function, "name"), args=args, problem=problem)
    custom = _field(item, "custom", None)
    if kind == "custom" and custom is not None:
        problem = "a call with free text; call the tool with a JSON object"
        return VendorCall(kind="chat", id=_text(item, "id"), name=_text(custom, "name"), problem=problem)
    call_id = _text(item, "call_id")
    if kind == "function_call":
        args, problem = _arguments(_field(item, "arguments", None))
        caller = _plain(_field(item, "caller", None))
        return VendorCall(
            kind="responses",
            id=call_id,
            name=_text(item, "name"),
            args=args,
            problem=problem,
            echo={"caller": caller} if caller else {},
            text_only=caller.get("type") == "program",
        )
    if kind == "custom_tool_call":
        problem = "a call with free text; call the tool with a JSON object"
        return VendorCall(kind="responses-custom", id=call_id, name=_text(item, "name"), problem=problem)
    if kind == "tool_search_call" and _text(item, "execution") == "client":
        args, problem = _arguments(_field(item, "arguments", None))
        return VendorCall(kind="responses-search", id=call_id, name="", args=args, problem=problem)
    return None


def _anthropic_call(item: object) -> VendorCall | None:
    if _text(item, "type") != "tool_use":
        return None
    args, problem = _arguments(_field(item, "input", None))
    caller, toolset = _plain(_field(item, "caller", None)), _text(item, "toolset_name")
    return VendorCall(
        kind="anthropic",
        id=_text(item, "id"),
        name=_text(item, "name"),
        args=args,
        problem=problem,
        echo={"toolset_name": toolset} if toolset else {},
        text_only=str(caller.get("type", "")).startswith("code_execution"),
    )


def _gemini_call(item: object) -> VendorCall | None:
    call = _field(item, "functionCall", None)
    call = _field(item, "function_call", None) if call is None else call
    if call is None and _text(item, "name") and _field(item, "response") is _MISSING:
        call = item  # not a part but the call itself; a function response has a name, too
    if call is None:
        return None
    args, problem = _arguments(_field(call, "args", None))
    call_id = _text(call, "id")
    echo = {"id": call_id} if call_id else {}
    return VendorCall(kind="gemini", id=call_id, name=_text(call, "name"), args=args, problem=problem, echo=echo)


def _arguments(given: object) -> tuple[JSONDict, str]:
    """Return the arguments, or what is wrong with them."""
    if given is None or given == "":
        return {}, ""
    value = given
    if isinstance(given, str):
        if len(given) > _MAX_ARGUMENTS:
            return {}, f"the arguments have {len(given)} characters; {_MAX_ARGUMENTS} is the most"
        try:
            value = json.loads(given, parse_constant=refuse_constant)
        except RecursionError:
            return {}, "the arguments are nested too deeply"
        except ValueError as error:
            return {}, f"the arguments are not valid JSON: {error}; write one JSON object"
    if not isinstance(value, Mapping):
        return {}, f"the arguments are {_json_name(value)}; write one JSON object"
    return dict(value), ""


def _json_name(value: JSONValue) -> str:
    names = {list: "an array", str: "text", bool: "a boolean", int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


# -- one answer -----------------------------------------------------------------------------------------------------


def _anthropic(call: VendorCall, answer: Answer) -> JSONDict:
    content: JSONValue = answer.text
    if answer.found is not None:
        content = [{"type": "tool_reference", "tool_name": name} for name, _ in answer.found] or answer.text
    elif call.text_only:
        content = _with_notes(answer)
    elif answer.media:
        shown = [block for media in answer.media if (block := _block(media)) is not None]
        text = "\n".join([answer.text, *(_note(media) for media in answer.media if _block(media) is None)]).strip()
        content = [*([{"type": "text", "text": text}] if text else []), *shown]
    data = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    return {**data, **({"is_error": True} if answer.is_error else {}), **call.echo}


def _block(media: Media) -> JSONDict | None:
    kind = "image" if media.mime_type in _IMAGES else "document" if media.mime_type == _PDF else ""
    source = {"type": "base64", "media_type": media.mime_type, "data": media.data}
    return {"type": kind, "source": source} if kind else None


def _responses(call: VendorCall, answer: Answer) -> JSONValue:
    if not answer.media or call.text_only:
        return _with_notes(answer)
    parts: list[JSONDict] = [{"type": "input_text", "text": answer.text}]
    for media in answer.media:
        address = f"data:{media.mime_type};base64,{media.data}"
        if media.mime_type in _IMAGES:
            parts.append({"type": "input_image", "image_url": address})
        elif media.mime_type == _PDF:
            parts.append({"type": "input_file", "filename": "result.pdf", "file_data": address})
        else:
            parts.append({"type": "input_text", "text": _note(media)})
    return parts


def _gemini(call: VendorCall, answer: Answer) -> JSONDict:
    response = answer.value if answer.is_error else {"output": answer.value}
    if answer.is_error and not isinstance(response, dict):
        response = {"error": answer.text}
    data: JSONDict = {**call.echo, "name": call.name, "response": response}
    if answer.media:
        data["parts"] = [{"inlineData": {"mimeType": m.mime_type, "data": m.data}} for m in answer.media]
    return {"functionResponse": data}


def _with_notes(answer: Answer) -> str:
    """Return the text, with a note for each medium that cannot go along."""
    return "\n".join([answer.text, *map(_note, answer.media)])


def _note(media: Media) -> str:
    return f"[{media.mime_type} of {len(media.data) * 3 // 4:,} bytes: not shown here]"


# -- reading what may be data or objects ----------------------------------------------------------------------------


def _each(items: Iterable[JSONValue], read: Callable[[JSONValue], VendorCall | None]) -> list[VendorCall]:
    return [call for item in items if (call := read(item)) is not None]


def _listed(message: object) -> Iterable[JSONValue]:
    if message is None or isinstance(message, str | bytes):
        return ()
    if isinstance(message, Mapping):
        return (message,)
    if isinstance(message, Iterable) and not hasattr(message, "model_dump"):
        return message
    return (message,)


def _field(item: object, name: str, default: object = _MISSING) -> JSONValue:
    """Return a field of JSON data or of an object."""
    if isinstance(item, Mapping):
        return item.get(name, default)
    return getattr(item, name, default)


def _text(item: object, name: str) -> str:
    value = _field(item, name, None)
    return value if isinstance(value, str) else ""


def _plain(value: JSONValue) -> JSONDict:
    if hasattr(value, "model_dump"):
        value = value.model_dump(by_alias=True, exclude_none=True, mode="json")
    return dict(value) if isinstance(value, Mapping) else {}
