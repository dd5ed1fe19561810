"""What `Exec` does to have tools: functions, skills, servers, providers; they are read again, removed, exchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from toolexec.lazy import lazy_names
from toolexec.model.json_value import JSONDict, JSONObject
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from pathlib import Path

    from toolexec.backend.base import Backend, BackendStatus
    from toolexec.backend.mcp import MCPSettings
    from toolexec.discovery.docs import DocEntry
    from toolexec.exec.parts import Parts
    from toolexec.exec.providers import AddedCommands, AddedHTTP, AddedOpenAPI, AddedPython
    from toolexec.exec.sources import Added
    from toolexec.model.binding import Binding
    from toolexec.model.declare import FunctionTool
    from toolexec.model.handler import Handler
    from toolexec.model.tool import Tool
    from toolexec.model.transform import ToolTransform
    from toolexec.workflow.skill import Skill
    from toolexec_grpc import AddedGRPC
else:  # what the annotations of checked methods name: imported at the first call of each
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.model.transform": ("ToolTransform",),
            "toolexec.workflow.skill": ("Skill",),
        },
    )

__all__ = ["ToolSources"]


class ToolSources:
    """The methods of `Exec` that add tools, and take them away."""

    _parts: Parts

    def add(
        self,
        tool: FunctionTool[..., Any] | Tool | Callable[..., Any],
        name: str | None = None,
        *,
        handler: Callable[[JSONDict], Any] | Handler | None = None,
        binding: Binding | None = None,
        doc: DocEntry | None = None,
    ) -> Tool:
        """Add a tool and return it.

        *tool* is a function (typed ones get their schema from their types), one declared with `@tool`, or a `Tool`;
        the latter comes with a *handler* that takes all arguments as one dict, or with a *binding* that says where it
        lives. *name* is for plain functions: a name or a whole ID. Raises InvalidToolError, InvalidSchemaError (with
        the place in the schema), ToolConflictError or ConfigurationError, with nothing added.
        """
        self._parts.sources.check_open()
        return self._parts.adding.add(tool, name, handler, binding, doc)

    @checked("add_skill")
    def add_skill(self, skill: Skill | str | Path) -> Tool:
        """Add a skill, a workflow that describes itself, and return its tool.

        *skill* is the path of its file, or its text, which begins with the front matter. It is found, described,
        checked and called as any tool, with the ID `skill:name`. It calls the tools that its front matter lists, or
        else those that it names; a gate decides each of these calls for the caller of the skill. A run that calls it
        counts them as its own, so its limits can only be tightened.

        Raises WorkflowSyntaxError, WorkflowCheckError for mistakes that no tool is needed to see, ConfigurationError,
        InvalidToolError or ToolConflictError, with nothing added.
        """
        self._parts.sources.check_open()
        return self._parts.skills.add(skill)

    @property
    def skills(self) -> Mapping[str, Skill]:
        """The skills that were added, by the IDs of their tools."""
        return dict(self._parts.skills.known)

    def add_mcp(
        self,
        name: str,
        *,
        command: str | Sequence[str] = "",
        args: Sequence[str] = (),
        url: str = "",
        **settings: Unpack[MCPSettings],
    ) -> Added:
        """Add an MCP server: a *command* to start (a program, or a whole command line) or the *url* of a running one.

        *settings* are those of `MCPServer`: env, cwd, headers, transport, namespace, connect_timeout, ... The tools
        appear as `name:tool` once the server is connected: when the Exec starts, at the first call that needs it, or
        now: `await ex.add_mcp(...)`. A server that cannot be reached raises nothing; `backend_statuses` has the reason.
        Raises ConfigurationError, BackendError, and MissingExtraError without the `mcp` extra.
        """
        return self._parts.sources.add_mcp(name, command, args, url, settings)

    @checked("add_config")
    def add_config(self, path: str | Path) -> Added:
        """Add the servers of an `mcpServers` JSON file, as Claude Desktop, Cursor and VS Code write it.

        Raises ConfigurationError, BackendError and MissingExtraError, with nothing added.
        """
        return self._parts.sources.add_config(path)

    def add_backends(self, *backends: Backend) -> Added:
        """Add backends of any kind; their tools appear once they are started. Raises BackendError for a name in
        use, with none of them added."""
        return self._parts.sources.add(backends)

    def add_http(self, name: str, base_url: str = "", **settings: Unpack[AddedHTTP]) -> Added:
        """Add endpoints of an HTTP service: `tools` maps names to what `HTTPTool` takes.

        *settings* are those of `HTTPProvider` (tools, file, headers, query, auth, credentials, hosts, timeout, ...)
        and of every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:tool` once it is read:
        when the Exec starts, at the first call that needs it, or now: `await ex.add_http(...)`. Raises
        ConfigurationError, BackendError, and MissingExtraError at the first call without the `http` extra.

        >>> import asyncio
        >>> from toolexec import Exec
        >>> async def main():
        ...     async with Exec() as ex:
        ...         get = {"path": "/users/{id}", "description": "Reads a user."}
        ...         [status] = await ex.add_http("users", "https://api.example.com", tools={"get_user": get})
        ...         return status.tools
        >>> asyncio.run(main())
        1
        """
        return self._parts.sources.add_provider(
            "http", name, {**({"base_url": base_url} if base_url != "" else {}), **settings}
        )

    def add_openapi(self, name: str, spec: str | Path | JSONObject, **settings: Unpack[AddedOpenAPI]) -> Added:
        """Add the operations of an HTTP API: *spec* is the path or the URL of its OpenAPI document, or the document.

        *settings* are those of `OpenAPIProvider` (base_url, auth, credentials, headers, include, tags, ...) and of
        every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:operation` once it is read:
        when the Exec starts, at the first call that needs it, or now: `await ex.add_openapi(...)`. Raises
        ConfigurationError and BackendError, and MissingExtraError where it is read without the `openapi` extra.

        >>> import asyncio
        >>> from toolexec import Exec
        >>> async def main():
        ...     async with Exec() as ex:
        ...         get = {"operationId": "get_user", "description": "Reads a user."}
        ...         servers = [{"url": "https://api.example.com"}]
        ...         spec = {"openapi": "3.1.0", "servers": servers, "paths": {"/users/{id}": {"get": get}}}
        ...         await ex.add_openapi("users", spec)
        ...         return (await ex.get_tool_doc("users:get_user", "schema")).tool.input_schema.to_json()["required"]
        >>> asyncio.run(main())
        ['id']
        """
        return self._parts.sources.add_provider("openapi", name, {"spec": spec, **settings})

    def add_grpc(self, name: str, target: str = "", **settings: Unpack[AddedGRPC]) -> Added:
        """Add the methods of gRPC services at *target* (`host:port`, `unix:PATH`, `grpc://...`, `grpcs://...`), which
        its server's reflection describes, or the file `descriptors`.

        *settings* are those of `GRPCProvider` (descriptors, services, tls, ca, certificate, key, metadata, timeout,
        ...) and of every provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:Service.Method`
        once they are read: when the Exec starts, at the first call that needs them, or now: `await ex.add_grpc(...)`.
        Raises ConfigurationError, BackendError, and MissingExtraError without the package `toolexec-grpc`, which the
        extra `grpc` installs.
        """
        return self._parts.sources.add_provider("grpc", name, {**({"target": target} if target else {}), **settings})

    def add_commands(self, name: str, **settings: Unpack[AddedCommands]) -> Added:
        """Add programs: `tools` maps names to what `CommandTool` takes. No shell is ever involved.

        *settings* are those of `CommandProvider` (tools, file, cwd, env, inherit, timeout, namespace) and of every
        provider: enabled, refresh, load_timeout, secrets. The tools appear as `name:tool` when the Exec starts, at the
        first call that needs them, or now: `await ex.add_commands(...)`. Raises ConfigurationError and BackendError.

        >>> from toolexec import Exec
        >>> with Exec().sync as ex:
        ...     _ = ex.add_commands("sys", tools={"say": {"argv": ["printf", "%s!", "{text}"]}})
        ...     ex.run_tool("sys:say", {"text": "$(id); rm -rf /"}).value
        '$(id); rm -rf /!'
        """
        return self._parts.sources.add_provider("command", name, settings)

    def add_python(self, name: str, target: str | Sequence[str] = (), **settings: Unpack[AddedPython]) -> Added:
        """Add what a Python module has: `package.module`, or `package.module:name` for a function, a tool (also one of
        LangChain, Pydantic AI or LlamaIndex), an `Exec`, or an object or list with tools.

        *settings* are those of `PythonSettings` (include, namespace) and of every provider: enabled, refresh,
        load_timeout. The module is imported when the Exec starts, at the first call that needs it, or now:
        `await ex.add_python(...)`. Raises ConfigurationError and BackendError.

        >>> from toolexec import Exec
        >>> with Exec().sync as ex:
        ...     _ = ex.add_python("text", "textwrap:dedent")
        ...     ex.run_tool("text:dedent", {"text": "  far right"}).value
        'far right'
        """
        return self._parts.sources.add_provider("python", name, {**({"target": target} if target else {}), **settings})

    @checked("refresh")
    async def refresh(self, name: str | None = None) -> list[BackendStatus]:
        """Read the tools of the backend *name* again, or those of all providers and servers; return how these are.

        A definition that cannot be read leaves the tools as they were, with the reason in the status. Raises
        BackendNotFoundError for a name that no such backend has.
        """
        return await self._parts.sources.refresh(name)

    @checked("remove")
    async def remove(self, name: str) -> None:
        """Close a backend and take its tools out of the index; unknown names are ignored."""
        await self._parts.sources.remove(name)

    @checked("retire")
    def retire(self, name: str) -> Backend | None:
        """Take a backend and its tools out without closing it, and return it; None where there is none of that name.

        Calls that are being made go on; `backends.release` closes it once they have ended. Another one of its name can
        be added at once. Raises ConfigurationError for a name that is not a string.
        """
        return self._parts.sources.retire(name)

    @checked("prepare_tools")
    def prepare_tools(
        self,
        transforms: Mapping[str, ToolTransform | Mapping[str, Any]],
        *,
        remove_skills: Sequence[str] = (),
        add_skills: Sequence[Skill] = (),
    ) -> Callable[[], None]:
        """Make other tools ready while calls are made, and return what exchanges them at once.

        *transforms* say how all tools are shown from then on; the skills of the tools *remove_skills*, by their own
        IDs, are gone then, and *add_skills* are there. Calls that are being made go on. Tools of backends that their
        transform does not fit are left out, with the reason in the backend's status.

        Raises ConfigurationError for an Exec whose gate is not a `LiveGate`, for a transform that does not fit a tool
        that was added, and for an ID that is taken; WorkflowCheckError and InvalidToolError for what cannot be such a
        tool. Nothing has changed then.
        """
        from toolexec.exec.exchanging import prepare_tools

        self._parts.sources.check_open()
        return prepare_tools(self._parts, transforms, remove_skills, add_skills)
