"""The calls of the operations of one document."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from toolexec.backend.providers.caching import for_caller_only
from toolexec.backend.providers.cleaning import clean_answer, clean_error
from toolexec.backend.providers.openapi.auth import Auth, UsedSecrets
from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.backend.providers.openapi.response import SUCCESS, reply_of
from toolexec.backend.providers.signing import written_secrets
from toolexec.backend.providers.source import key_of
from toolexec.backend.providers.streaming import events_of
from toolexec.backend.secrets import Scrubber
from toolexec.errors import BackendUnavailableError, ToolExecError
from toolexec.model.call import ToolCall, note_login
from toolexec.model.events import StreamEvent
from toolexec.model.json_value import JSONValue
from toolexec.net.http import HTTPRequest, HTTPResponse, OpenResponse
from toolexec.net.oauth.reach import Client

_MAX_SCRUBBERS: Final = 256


class StreamingClient(Client, Protocol):
    """What is needed of an `HTTPClient`, also for streams."""

    def open(self, request: HTTPRequest) -> AbstractAsyncContextManager[OpenResponse]:
        """Send a request and give its response as soon as its headers are there."""
        ...


class Caller:
    """Makes the calls of the operations of one reading."""

    def __init__(
        self,
        client: StreamingClient,
        auth: Auth,
        hidden: frozenset[str],
        scrubber: Scrubber,
        shown: tuple[str, ...] = (),
    ) -> None:
        self._client = client
        self._auth = auth
        self._hidden = hidden
        self._hide = scrubber
        self._scrubbers: dict[frozenset[str], Scrubber] = {}
        self._shown = shown

    async def call(self, operation: Operation, call: ToolCall) -> JSONValue:
        """Send the request of a call and return what the response means."""
        used = UsedSecrets()
        try:
            response = await self._client.send(await self._request(operation, call, used))
            if await self._auth.is_renewed(used, response, is_last=False):  # before anything was done
                response = await self._client.send(await self._request(operation, call, used))
                await self._auth.is_renewed(used, response, is_last=True)
            return self._answer(operation, used, response)
        except ToolExecError as error:
            raise clean_error(error, self._scrubber(used)) from error

    async def stream(self, operation: Operation, call: ToolCall) -> AsyncGenerator[StreamEvent, None]:
        """Send the request of a call and yield the items of its response as they arrive."""
        used = UsedSecrets()
        item = partial(self._clean, used)
        answer = partial(self._answer, operation, used)
        try:
            for is_last in (False, True):
                async with self._client.open(await self._request(operation, call, used)) as response:
                    if await self._auth.is_renewed(used, response, is_last=is_last):
                        continue
                    used.secrets |= written_secrets(response.credentials)
                    async with aclosing(events_of(response, SUCCESS, item, answer)) as events:
                        async for event in events:
                            yield event
                return
        except ToolExecError as error:
            raise clean_error(error, self._scrubber(used)) from error

    async def _request(self, operation: Operation, call: ToolCall, used: UsedSecrets) -> HTTPRequest:
        """Return the request of a call, with its credentials."""
        if not operation.server:
            raise BackendUnavailableError("its server has no host; set base_url", retryable=False)
        key = key_of(call) or (call.identify() if operation.needs_key else "")
        draft = draft_of(operation, call.args or {}, key)
        await self._auth.apply(operation.security, draft, used, call.origin)
        if used.login is not None and used.login.caller:
            note_login(call, used.login.caller)
        return replace(draft.request(), auth=used.signer)

    def _answer(
        self, operation: Operation, used: UsedSecrets, response: HTTPResponse, items: list[Any] | None = None
    ) -> Any:
        used.secrets |= written_secrets(response.credentials)
        answer = reply_of(operation, response, self._scrubber(used), shown=self._shown, items=items)
        answer = self._clean(used, answer)
        return answer if self._auth.is_shared else for_caller_only(answer)

    def _clean(self, used: UsedSecrets, value: Any) -> Any:
        return clean_answer(value, self._scrubber(used))

    def _scrubber(self, used: UsedSecrets) -> Scrubber:
        """Return what takes the credentials out of answers, those that the call was made with among them."""
        if not used.secrets:
            return self._hide
        secrets = frozenset(used.secrets)
        found = self._scrubbers.get(secrets)
        if found is None:
            if len(self._scrubbers) >= _MAX_SCRUBBERS:
                self._scrubbers.clear()
            found = self._scrubbers[secrets] = Scrubber(self._hidden | secrets)
        return found
