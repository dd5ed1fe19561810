"""Answers to a model's calls, in the form that each vendor's API takes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolexec.errors import ToolExecError
from toolexec.exec.vendor_messages import VendorCall
from toolexec.run.excerpt import excerpt, size
from toolexec.run.types import Result

__all__ = ["Answer", "Media", "answer_of", "failed", "reply"]

_IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF: Final = "application/pdf"
_MAX_DETAILS: Final = 2000
_NOTE: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    """A part that is no text: its media type, and its bytes in base64."""

    mime_type: str
    data: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What there is to say to a call. `value` is JSON, `text` the same as text; `found` are the names and forms of the
    tools that a search has found."""

    value: Any
    text: str
    is_error: bool = False
    media: tuple[Media, ...] = ()
    found: tuple[tuple[str, Mapping[str, Any]], ...] | None = None


def answer_of(result: Result, max_bytes: int, max_media_bytes: int) -> Answer:
    """The answer that a result is: its value and media parts, as far as they fit."""
    if result.error is not None:
        return failed(result.error, max_bytes, result.value)
    notes: list[str] = []
    media: list[Media] = []
    room = max_media_bytes
    for part in result.content:
        found = _media(part)
        if found is None:
            notes += _other(part)
        elif len(found.data) > room:
            notes.append(f"[{found.mime_type} of {len(found.data):,} bytes in base64: too large to be shown]")
        else:
            room -= len(found.data)
            media.append(found)
    return _cut(Answer(value=result.value, text=_json(result.value), media=tuple(media)), notes, max_bytes)


def failed(error: ToolExecError, max_bytes: int, ran: Any = None) -> Answer:
    """The answer that an error is: what went wrong, whether trying again makes sense, and what there is of a value."""
    error = error.public()
    data: dict[str, Any] = {"code": error.code, "message": error.message, "retryable": error.retryable}
    if error.details and len(_json(error.details)) <= _MAX_DETAILS:
        data["details"] = error.details
    value: dict[str, Any] = {"error": data}
    if ran is not None:
        value["value"] = ran
    return _cut(Answer(value=value, text=_json(value), is_error=True), [], max_bytes)


def reply(call: VendorCall, answer: Answer) -> dict[str, Any]:
    """The answer in the form that fits the call."""
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
        shape: dict[str, Any] = {"type": "tool_search_output", "call_id": call.id, "execution": "client"}
        return {**shape, "status": "completed", "tools": forms}
    return {"type": "function_call_output", "call_id": call.id, "output": _responses(call, answer), **call.echo}


def _anthropic(call: VendorCall, answer: Answer) -> dict[str, Any]:
    content: Any = answer.text
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


def _block(media: Media) -> dict[str, Any] | None:
    kind = "image" if media.mime_type in _IMAGES else "document" if media.mime_type == _PDF else ""
    source = {"type": "base64", "media_type": media.mime_type, "data": media.data}
    return {"type": kind, "source": source} if kind else None


def _responses(call: VendorCall, answer: Answer) -> Any:
    if not answer.media or call.text_only:
        return _with_notes(answer)
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": answer.text}]
    for media in answer.media:
        address = f"data:{media.mime_type};base64,{media.data}"
        if media.mime_type in _IMAGES:
            parts.append({"type": "input_image", "image_url": address})
        elif media.mime_type == _PDF:
            parts.append({"type": "input_file", "filename": "result.pdf", "file_data": address})
        else:
            parts.append({"type": "input_text", "text": _note(media)})
    return parts


def _gemini(call: VendorCall, answer: Answer) -> dict[str, Any]:
    response = answer.value if answer.is_error else {"output": answer.value}
    if answer.is_error and not isinstance(response, dict):
        response = {"error": answer.text}
    data: dict[str, Any] = {**call.echo, "name": call.name, "response": response}
    if answer.media:
        data["parts"] = [{"inlineData": {"mimeType": m.mime_type, "data": m.data}} for m in answer.media]
    return {"functionResponse": data}


# -- parts and sizes ------------------------------------------------------------------------------------------------


def _media(part: Mapping[str, Any]) -> Media | None:
    """A picture, a sound, or a resource that comes with its bytes."""
    holder, data = part, part.get("data")
    if part.get("type") == "resource" and isinstance(part.get("resource"), Mapping):
        holder, data = part["resource"], part["resource"].get("blob")
    if not isinstance(data, str):
        return None
    kind = holder.get("mimeType")
    return Media(mime_type=kind if isinstance(kind, str) and kind else "application/octet-stream", data=data)


def _other(part: Mapping[str, Any]) -> list[str]:
    """What a part says that is neither among the texts that make the value nor a medium."""
    if part.get("type") == "resource_link":
        return [f"[{part.get('name', 'resource')}: {part.get('uri', '')}]"]
    resource = part.get("resource")
    if isinstance(resource, Mapping) and isinstance(resource.get("text"), str):
        return [f"[{resource.get('uri', 'resource')}]\n{resource['text']}"]
    return []


def _cut(answer: Answer, notes: Sequence[str], max_bytes: int) -> Answer:
    """The answer within so many bytes of JSON; where something is missing, it says so."""
    text = "\n".join([answer.text, *notes])
    value = answer.value if not notes else {"value": answer.value, "notes": list(notes)}
    if size(value) <= max_bytes and size(text) <= max_bytes:
        return Answer(value=value, text=text, is_error=answer.is_error, media=answer.media)
    pieces = excerpt(text, max_bytes - _NOTE)
    cut = pieces["cut"]["characters"]
    text = f"{pieces['head']}\n[{cut:,} of {len(text):,} characters are cut here; ask for less]\n{pieces['tail']}"
    return Answer(value=text, text=text, is_error=answer.is_error, media=answer.media)


def _with_notes(answer: Answer) -> str:
    """The text, with a note for each medium that cannot go along."""
    return "\n".join([answer.text, *map(_note, answer.media)])


def _note(media: Media) -> str:
    return f"[{media.mime_type} of {len(media.data) * 3 // 4:,} bytes: not shown here]"


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
