"""Responses of HTTP services as streams of events: each item as it arrives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from typing import Any

from toolexec.backend.providers.items import item_parser
from toolexec.model.events import StreamEvent
from toolexec.net.http import HTTPResponse, OpenResponse


async def events_of(
    response: OpenResponse,
    success: Collection[int],
    item: Callable[[Any], Any],
    answer: Callable[[HTTPResponse, list[Any] | None], Any],
) -> AsyncGenerator[StreamEvent, None]:
    """Yield what *item* makes of each item of a response as chunks, and what *answer* makes of all of them as `done`.

    A response that is not a stream of items, or whose status is not among *success*, is read to its end and answered in
    one piece: *answer* is given None in place of the items. Raises as `HTTPClient.send` and these functions do.
    """
    parser = item_parser(response.headers) if response.status in success else None
    if parser is None:
        yield StreamEvent(kind="done", data=answer(await response.read(), None))
        return
    found: list[Any] = []
    async with aclosing(response.chunks) as chunks:
        async for data in chunks:
            for each in parser.feed(data):
                found.append(item(each))
                yield StreamEvent(kind="chunk", data=found[-1])
    for each in parser.finish():
        found.append(item(each))
        yield StreamEvent(kind="chunk", data=found[-1])
    whole = HTTPResponse(response.status, response.headers, b"", response.url, response.credentials)
    yield StreamEvent(kind="done", data=answer(whole, found))
