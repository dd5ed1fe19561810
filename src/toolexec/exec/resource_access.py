"""What `Exec` passes on of servers beside tools: resources and prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names
from toolexec.model.settings import checked

if TYPE_CHECKING:
    from toolexec.exec.parts import Parts
    from toolexec.exec.resources import Resources
    from toolexec.model.resources import Completions, Prompt, PromptReply, Resource, ResourceReply, ResourceTemplate
else:  # what the annotations of checked methods name: imported at the first call of each
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.model.resources": ("Prompt", "ResourceTemplate"),
        },
    )

__all__ = ["ResourceAccess"]


class ResourceAccess:
    """The methods of `Exec` for resources and prompts."""

    _parts: Parts

    @property
    def resources(self) -> Resources:
        """What the backends offer beside tools, for those who pass it on to others."""
        return self._parts.resources

    async def list_resources(self) -> list[Resource]:
        """Return the resources of all MCP servers that may be known of just now, by server.

        A server that cannot be asked has none here; the log has the reason. At most 10,000 are taken of a server.
        """
        return await self._parts.resources.list_resources()

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the templates of resources, as `list_resources` does resources."""
        return await self._parts.resources.list_templates()

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts, as `list_resources` does resources."""
        return await self._parts.resources.list_prompts()

    @checked("read_resource")
    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ResourceReply:
        """Return what a resource holds. *uri* is that of a `Resource`, or of a filled in template.

        It is read through the gate, as tools are called: rules know it by its `id`. *timeout* in seconds takes the
        place of `default_timeout`. At most 32 MiB are taken. Raises NotOfferedError for a URI that no server offers,
        BackendError where the server cannot be reached, an ExecutionError where it refuses or what it says cannot be
        read, ToolTimeoutError, and what the gate raises.
        """
        return await self._parts.resources.read(uri, timeout)

    @checked("get_prompt")
    async def get_prompt(
        self, name: str, args: Mapping[str, str] | None = None, *, timeout: float | None = None
    ) -> PromptReply:
        """Return a prompt with its arguments filled in; *name* is that of a `Prompt`.

        As `read_resource`, it goes through the gate and raises; also InputValidationError for an argument that is
        missing, and ConfigurationError for one that is not a string.
        """
        return await self._parts.resources.get(name, args, timeout)

    @checked("complete")
    async def complete(
        self, ref: Prompt | ResourceTemplate, argument: str, value: str = "", *, known: Mapping[str, str] | None = None
    ) -> Completions:
        """Return values that an *argument* of a prompt, or a variable of a template, may have, and that are like
        *value*; none from a server that completes nothing. *known* are other arguments. Raises as `read_resource`.
        """
        self._parts.sources.check_open()
        return await self._parts.resources.complete(ref, argument, value, known)
