"""Resources and prompts of the servers of an `Exec`, for those who may know of them; all is asked through the gate."""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar

from toolexec.backend.offering import OffersMore
from toolexec.backend.offers import Offered, Offers
from toolexec.errors import ConfigurationError, NotOfferedError, PolicyError, RemoteToolError, ToolExecError
from toolexec.model.call import ProgressCallback, ToolCall
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.origin import current_origin
from toolexec.model.resources import (
    Completions,
    Prompt,
    PromptArgument,
    PromptReply,
    Resource,
    ResourceReply,
    ResourceTemplate,
    gateway_uri,
    split_uri,
)

if TYPE_CHECKING:
    from toolexec.backend.registry import BackendRegistry
    from toolexec.exec.calls import Calls
    from toolexec.exec.scope import Scope
    from toolexec.model.transform import Transforms
    from toolexec.run.types import Result

logger: logging.Logger = logging.getLogger(__name__)
_MAX_CLOSE: Final = 3
T = TypeVar("T")


class Resources:
    """What the backends offer beside tools; starts those that are not started yet."""

    def __init__(
        self, scope: Scope, backends: BackendRegistry, calls: Calls, transforms: Transforms | None = None
    ) -> None:
        self._scope = scope
        self._transforms = transforms
        self._backends = backends
        self._calls = calls

    def backends(self) -> list[OffersMore]:
        """Return the backends that may offer something."""
        return [backend for backend in self._backends.list(enabled=True) if isinstance(backend, OffersMore)]

    def may_offer(self) -> frozenset[str]:
        """Return what any of them may offer; see `OffersMore.may_offer`."""
        return frozenset[str]().union(*(backend.may_offer for backend in self.backends()))

    async def list_resources(self) -> list[Resource]:
        """Return the resources that may be known of; see `Exec.list_resources`."""
        return await self.visible("resources", lambda offers: offers.resources, _resource)

    async def list_templates(self) -> list[ResourceTemplate]:
        """Return the templates that may be known of; see `Exec.list_resource_templates`."""
        return await self.visible("resources", lambda offers: offers.templates, _template)

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts that may be known of; see `Exec.list_prompts`."""
        return await self.visible("prompts", lambda offers: offers.prompts, _prompt)

    async def visible(
        self, what: str, choose: Callable[[Offers], Sequence[Offered]], make: Callable[[Offered], T]
    ) -> list[T]:
        """Return the offers that may be known of, as *make* makes them, by backend in order of registration. A backend
        that cannot be asked has none; the log has the reason."""
        return [make(one) for one in await self._all(what, choose) if self._scope.shows(one.entry)]

    async def _all(self, what: str, choose: Callable[[Offers], Sequence[Offered]]) -> list[Offered]:
        await self._started()
        backends = [backend for backend in self.backends() if what in backend.may_offer]
        found = await asyncio.gather(*(self._offers(backend) for backend in backends))
        return [one for offers in found for one in choose(offers)]

    async def _offers(self, backend: OffersMore) -> Offers:
        try:
            return await backend.offers()
        except ToolExecError as error:
            logger.warning("resources and prompts of %s are missing: %s", backend.name, error.message)
            return Offers()

    async def read(self, uri: str, timeout: float | None = None) -> ResourceReply:
        """Return what the resource holds; see `Exec.read_resource`."""
        _check_timeout("read_resource", timeout)
        own_uri, offered = await self.to_read(uri)
        result = await self.ask(offered, {"uri": own_uri}, timeout)
        try:
            return ResourceReply.from_mcp(answer_of(result))
        except ValueError as error:
            raise RemoteToolError(str(error), tool_id=offered.id) from error

    async def resource(self, uri: str) -> tuple[OffersMore, str, Offered]:
        """Return who has the resource, what it is called there, and what it is read by; raises NotOfferedError."""
        found = await self._found(uri)
        if found is None or not self._scope.shows(found[2].entry):
            raise _no_resource(uri)
        return found

    async def to_read(self, uri: str) -> tuple[str, Offered]:
        """Return what `resource` does of one that is to be read. The attempt to read one that is hidden is on
        record, as that of a call is; raises NotOfferedError."""
        found = await self._found(uri)
        if found is None:
            raise _no_resource(uri)
        _, own_uri, offered = found
        if not self._scope.shows(offered.entry):
            await self._refuse(offered, {"uri": own_uri})
            raise _no_resource(uri)
        return own_uri, offered

    async def _found(self, uri: str) -> tuple[OffersMore, str, Offered] | None:
        await self._started()
        parts, backend = split_uri(uri), self.backend_of(uri)
        if parts is None or backend is None or "resources" not in backend.may_offer:
            return None
        offered = (await backend.offers()).of_uri(parts[1])
        return None if offered is None else (backend, parts[1], offered)

    async def _refuse(self, offered: Offered, args: JSONObject) -> None:
        """Have the gate refuse what a rule forbids or a pin holds, which puts it on record; no server is asked."""
        try:
            self._scope.check_denied(offered.entry, args)
        except PolicyError:
            with suppress(ToolExecError):
                await self.ask(offered, args)

    async def shows(self, offer_id: str) -> bool:
        """Return whether there is a resource or a prompt with this ID that may be known of."""
        for backend in self.backends():
            offered = (await self._offers(backend)).find(offer_id)
            if offered is not None:
                return self._scope.shows(offered.entry)
        return False

    def backend_of(self, uri: str) -> OffersMore | None:
        """Return the backend that the URI names, if there is one."""
        parts = split_uri(uri)
        return next((one for one in self.backends() if parts is not None and one.name == parts[0]), None)

    async def watchable(self, uri: str) -> tuple[OffersMore, str]:
        """Return who has the resource, and what it is called there, for those who may be notified of its changes:
        no rule forbids them to read it. Raises NotOfferedError, and PolicyError."""
        backend, own_uri, offered = await self.resource(uri)
        self._scope.check_denied(offered.entry, {"uri": own_uri})
        return backend, own_uri

    async def to_watch(self, uri: str) -> tuple[OffersMore, str]:
        """Return what `watchable` does, for one who asks to be notified. A refused attempt is on record, as that
        to read is."""
        try:
            return await self.watchable(uri)
        except (PolicyError, NotOfferedError):
            found = await self._found(uri)
            if found is not None:
                await self._refuse(found[2], {"uri": found[1]})
            raise

    async def get(self, name: str, args: Mapping[str, str] | None, timeout: float | None = None) -> PromptReply:
        """Return the prompt with its arguments; see `Exec.get_prompt`."""
        _check_timeout("get_prompt", timeout)
        wrong = sorted(str(key) for key, value in (args or {}).items() if not isinstance(value, str))  # pyright: ignore[reportUnnecessaryIsInstance]
        if wrong:
            raise ConfigurationError(f"the arguments of a prompt are strings, unlike {', '.join(wrong)}")
        offered = await self.to_get(name, dict(args or {}))
        return PromptReply.from_mcp(answer_of(await self.ask(offered, dict(args or {}), timeout)))

    async def prompt(self, name: str) -> Offered:
        """Return the prompt of that name; raises NotOfferedError."""
        prompts = await self.visible("prompts", lambda offers: offers.prompts, lambda offered: offered)
        found = [offered for offered in prompts if offered.name == name]
        if len(found) == 1:
            return found[0]
        close = difflib.get_close_matches(name[:200], [offered.name for offered in prompts], n=_MAX_CLOSE)
        hint = f"did you mean {' or '.join(close)}?" if close else "list_prompts has those that there are"
        raise NotOfferedError(f"no prompt {name[:200]!r}; {hint}", details={"name": name[:200], "close": close})

    async def to_get(self, name: str, args: JSONObject) -> Offered:
        """Return the prompt of that name, to be asked for with *args*. The attempt to get one that is hidden is on
        record, as that of a call is; raises NotOfferedError."""
        try:
            return await self.prompt(name)
        except NotOfferedError:
            for offered in await self._all("prompts", lambda offers: offers.prompts):
                if offered.name == name:
                    await self._refuse(offered, args)
            raise

    async def complete(
        self, ref: Prompt | ResourceTemplate, argument: str, value: str, known: Mapping[str, str] | None
    ) -> Completions:
        """Return values that an argument may have; see `Exec.complete`."""
        backend = next((one for one in self.backends() if one.name == ref.backend), None)
        offers = await backend.offers() if backend is not None else Offers()
        offered = offers.find(ref.id)
        if offered is None or not self._scope.shows(offered.entry):
            raise NotOfferedError(f"{ref.id} is not offered any more", details={"name": ref.id})
        return await self.completed(offers, offered, argument, value, known)

    async def completed(
        self, offers: Offers, offered: Offered, argument: str, value: str, known: Mapping[str, str] | None
    ) -> Completions:
        """Return values that an argument of *offered*, one of *offers*, may have; none where its server completes
        nothing, or may not be asked."""
        if offers.completion is None or not self._scope.shows(offers.completion.entry):
            return Completions()
        shown = self._transforms.of(offered.entry.tool) if self._transforms is not None else None
        if shown is not None and offered.kind == "prompt":  # its server knows the arguments by their own names
            known = {own: text for name, text in (known or {}).items() if (own := shown.own_name(name))}
            if not (argument := shown.own_name(argument)):
                return Completions()
        is_prompt = offered.kind == "prompt"
        ref: JSONDict = {"type": "ref/prompt", "name": offered.remote}
        if not is_prompt:
            ref = {"type": "ref/resource", "uri": offered.remote}
        args: JSONDict = {"ref": ref, "argument": {"name": argument, "value": value}}
        if known:
            args["context"] = dict(known)
        found = answer_of(await self.ask(offers.completion, args)).get("completion")
        data: JSONObject = found if isinstance(found, dict) else {}
        total = data.get("total")
        return Completions(
            values=tuple(str(one) for one in data.get("values") or ())[:100],
            total=total if isinstance(total, int) else None,
            has_more=data.get("hasMore") is True,
        )

    async def ask(
        self,
        offered: Offered,
        args: JSONObject,
        timeout: float | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Result:
        """Ask for what is offered, on the path that all calls take."""
        call = ToolCall(offered.id, args, timeout, on_progress, False, current_origin())
        return await self._calls.runner.run(call)

    async def _started(self) -> None:
        if self._calls.sources.pending:
            await self._calls.sources.start()


def _no_resource(uri: str) -> NotOfferedError:
    message = f"no resource {uri[:500]!r}; list_resources has those that there are"
    return NotOfferedError(message, details={"uri": uri[:500]})


def answer_of(result: Result) -> JSONObject:
    """Return the answer of a server. Raises its failure, and RemoteToolError where a budget has cut it."""
    value = result.raise_for_error().value
    if result.handle or not isinstance(value, dict):
        raise RemoteToolError(
            f"the answer to {result.tool_id} is longer than the budget for results",
            tool_id=result.tool_id,
            details={"handle": result.handle} if result.handle else {},
        )
    return value


def _check_timeout(method: str, timeout: float | None) -> None:
    """Raise ConfigurationError for what is not a time in seconds, before a server is started or asked."""
    if timeout is not None and (not isinstance(timeout, int | float) or timeout is True or not timeout > 0):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{method}: timeout must be above 0 seconds, not {timeout!r}")


def _resource(offered: Offered) -> Resource:
    data = offered.listed
    size = data.get("size")
    return Resource(
        id=offered.id,
        uri=gateway_uri(offered.entry.binding.backend, offered.remote),
        own_uri=offered.remote,
        backend=offered.entry.binding.backend,
        name=str(data.get("name", "")),
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        mime_type=str(data.get("mimeType", "")),
        size=size if isinstance(size, int) else None,
        definition=data,
    )


def _template(offered: Offered) -> ResourceTemplate:
    data = offered.listed
    return ResourceTemplate(
        id=offered.id,
        uri_template=gateway_uri(offered.entry.binding.backend, offered.remote),
        own_uri_template=offered.remote,
        backend=offered.entry.binding.backend,
        name=str(data.get("name", "")),
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        mime_type=str(data.get("mimeType", "")),
        definition=data,
    )


def _prompt(offered: Offered) -> Prompt:
    data = offered.listed
    return Prompt(
        id=offered.id,
        name=offered.name,
        own_name=offered.remote,
        backend=offered.entry.binding.backend,
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        arguments=tuple(map(_argument, data.get("arguments") or ())),
        definition=data,
    )


def _argument(data: JSONObject) -> PromptArgument:
    return PromptArgument(
        name=str(data.get("name", "")),
        title=str(data.get("title", "")),
        description=str(data.get("description", "")),
        required=data.get("required") is True,
    )
