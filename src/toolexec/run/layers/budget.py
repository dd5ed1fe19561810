"""A budget of bytes for what a call gives back."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolexec.errors import ConfigurationError, InvalidResultError, ToolExecError
from toolexec.model.call import ToolCall
from toolexec.model.content import ToolReply, text
from toolexec.model.json_value import JSONObject
from toolexec.model.origin import Origin
from toolexec.model.settings import checked
from toolexec.run.excerpt import end_within, excerpt, size
from toolexec.run.framing import Framed, framed, note
from toolexec.run.large import is_small, surely_fits, walked
from toolexec.run.layer import Layer
from toolexec.run.outline import Outline
from toolexec.run.resolve import Find
from toolexec.run.results import ResultStore
from toolexec.run.runner import Runner
from toolexec.run.settings import MIN_BYTES
from toolexec.run.types import Result

if TYPE_CHECKING:
    from toolexec.run.gate import Gate

__all__ = ["Budget", "kept_results"]

_MEDIA_BYTES: Final = 1 << 20
_NOTE_BYTES: Final = 400


@checked("Budget")
class Budget:
    """Keeps what a call gives back within *max_bytes* of JSON (None: the store's budget of one reply), and within the
    store's budget of tokens, if it has one.

    A larger value is kept in *store*; an outline takes its place, and `Result.handle` says so. Strings among the parts
    of a reply and the details of an error are cut alike. Images and other parts have *max_media_bytes* together; one
    that is over that becomes a note with a handle.

    Only calls that are made for themselves are cut: the steps of a chain and the calls of code get whole values, and
    what comes out of the whole is cut where it is shown. The last event of a stream is cut, chunks are not. Raises
    ConfigurationError for a budget below 1000 bytes.
    """

    def __init__(
        self, store: ResultStore, max_bytes: int | None = None, *, max_media_bytes: int = _MEDIA_BYTES
    ) -> None:
        if max_bytes is not None and max_bytes < MIN_BYTES:
            raise ConfigurationError(f"max_bytes, the budget of a call, must be at least {MIN_BYTES}, not {max_bytes}")
        if max_media_bytes < 0:
            raise ConfigurationError(f"max_media_bytes must be 0 or more, not {max_media_bytes}")
        self.store = store
        self.max_bytes: int = store.max_bytes if max_bytes is None else max_bytes
        self.max_media_bytes = max_media_bytes

    def wrap(self, inner: Runner, find: Find) -> Runner:
        """Return a runner that keeps the budget around *inner*."""
        return _Budgeted(inner, self)

    def has_room_for(self, value: Any) -> bool:
        """Return whether a value is so small that it is certainly left as it is; looks at a few parts of it."""
        return self.store.surely_fits(value, self.max_bytes)

    def cut(self, result: Result, origin: Origin) -> Result:
        """*result* with everything in it cut to the budget; a value that cannot be written as JSON is an error."""
        value = result.value
        if not self.has_room_for(value):
            try:
                shown = self.store.show(value, origin, self.max_bytes)
            except InvalidResultError as error:
                result.value, result.error = None, error.locate(tool_id=result.tool_id)
            else:
                result.value, result.handle = shown.value, shown.handle
        if result.reply is not None:
            result.reply = self._cut_reply(result.reply, value, result, origin)
        if result.error is not None:
            self._cut_error(result.error, origin)
        return result

    def _cut_reply(self, reply: ToolReply, value: Any, result: Result, origin: Origin) -> ToolReply:
        strings, media = self.max_bytes, self.max_media_bytes
        content: list[JSONObject] = []
        for part in reply.content:
            shown: JSONObject = part
            cost = size(part)
            if part.get("type") == "text" and isinstance(part.get("text"), str):
                room = self.store.room_for(part["text"], strings)
                if cost > room:
                    is_value = part["text"] == value
                    known = result.handle if is_value or _is_json_of(part["text"], value) else ""
                    reads = "" if not known or is_value else f"read_result with handle {known} has the value"
                    cut = self._cut_text(part["text"], max(room, MIN_BYTES), known, origin, reads)
                    shown = {**part, "text": cut}
                    cost = size(shown)
                strings -= cost
            elif cost > media:
                shown = text(self._note(part, cost, origin))
                strings -= size(shown)
            else:
                media -= cost
            if strings < 0 and content:
                content.append(text(Framed(note(f"{len(reply.content) - len(content)} more parts are left out"))))
                break
            content.append(shown)
        was_cut = isinstance(result.value, Outline) and reply.has_structured
        return replace(reply, content=content, structured=result.value if was_cut else reply.structured)

    def _cut_text(self, whole: str, room: int, handle: str, origin: Origin, reads: str = "") -> str:
        handle = handle or self.store.keep(whole, origin)
        pieces = excerpt(whole, room - _NOTE_BYTES)
        cut = pieces["cut"]
        where = f"read_result with handle {handle} and offset {cut['offset']} reads on" if handle else "not kept"
        where = reads or where
        words = note(f"{cut['characters']:,} of {len(whole):,} characters are cut here; {where}")
        return Framed(f"{framed(pieces['head'])}\n{words}\n{framed(pieces['tail'])}")

    def _note(self, part: JSONObject, cost: int, origin: Origin) -> str:
        handle = self.store.keep(dict(part), origin)
        kept = f"it is kept: read_result with handle {handle} has it" if handle else "it is not kept"
        words = " ".join(str(part.get(name, "")) for name in ("type", "mimeType")).strip()
        named = framed(words[: end_within(words, 0, 100)])
        return Framed(note(f"{named} of {cost:,} bytes, too large to be shown; {kept}"))

    def _cut_error(self, error: ToolExecError, origin: Origin) -> None:
        if not surely_fits(error.message, self.max_bytes) and size(error.message) > self.max_bytes:
            error.message = self._cut_text(error.message, self.max_bytes, "", origin)
        if error.details and not self.store.surely_fits(error.details, self.max_bytes):
            shown = self.store.show(error.details, origin, self.max_bytes)
            if shown.bytes:
                error.details = shown.value


def _is_json_of(text: str, value: Any) -> bool:
    """Return whether a text is the JSON of a value that a reply has, too, as servers send it to clients that read text
    alone."""
    if not isinstance(value, dict | list) or text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False


class _Budgeted(Layer):
    """Runs calls through the budget."""

    def __init__(self, inner: Runner, budget: Budget) -> None:
        super().__init__(inner)
        self._budget = budget

    def after(self, call: ToolCall, result: Result) -> Result | Awaitable[Result] | None:
        if call.origin.path != "direct":
            return None
        if result.reply is None and result.error is None and self._budget.has_room_for(result.value):
            return None
        cut = partial(self._budget.cut, result, call.origin)
        content = result.reply.content if result.reply is not None else ()
        return cut() if is_small(result.value) and is_small(content) else walked(cut)


def kept_results(gate: Gate | None) -> ResultStore | None:
    """Return where the budget of *gate* keeps what it has cut, None where nothing is cut: whatever reads results by
    their handles reads them there."""
    budget = gate.budget if gate is not None else None
    return budget.store if isinstance(budget, Budget) else None
