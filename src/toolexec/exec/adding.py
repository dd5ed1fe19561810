"""How tools of Python functions, and tools by hand, get into an `Exec`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolexec.errors import ConfigurationError
from toolexec.model.binding import Binding, LocalBinding
from toolexec.model.declare import FunctionTool, declare
from toolexec.model.handler import Handler
from toolexec.model.json_value import JSONDict, shorten
from toolexec.model.tool import Tool

if TYPE_CHECKING:
    from toolexec.backend.local import LocalBackend
    from toolexec.discovery.docs import DocEntry
    from toolexec.discovery.facade import Discovery
    from toolexec.model.transform import Transforms


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedTool:
    """A tool as it was added, where it is, its documentation, and the ID by which it is shown; "" if it is hidden."""

    tool: Tool
    binding: Binding
    doc: DocEntry | None
    shown: str

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it."""
        return self.tool.id, self.binding.kind, self.binding.backend


class Adding:
    """Adds tools to an index with their documentation, and their functions to the backend that runs those."""

    def __init__(self, discovery: Discovery, local: LocalBackend, transforms: Transforms | None = None) -> None:
        self._discovery = discovery
        self._local = local
        self._transforms = transforms
        self.stand_ins: set[str] = set()
        """The IDs of tools that stand for those of a recorded session, until they are added themselves."""
        self.added: dict[tuple[str, str, str], AddedTool] = {}
        """The tools that were added, also those that are hidden, by their keys; kept where there are transforms."""

    def add(
        self,
        tool: FunctionTool[..., Any] | Tool | Callable[..., Any],
        name: str | None,
        handler: Callable[[JSONDict], Any] | Handler | None,
        binding: Binding | None,
        doc: DocEntry | None,
    ) -> Tool:
        """Add a tool and return it; see `Exec.add`, which alone calls this."""
        if not callable(tool) and not isinstance(tool, Tool):
            raise ConfigurationError(
                f"add: tool must be a function, one declared with @tool, or a Tool, not {shorten(repr(tool))}"
            )
        if name is not None and not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"add: name must be a string or None, not {shorten(repr(name))}")
        if doc is not None and not isinstance(doc, _doc_entry()):
            raise ConfigurationError(f"add: doc must be a DocEntry or None, not {shorten(repr(doc))}")
        if name is not None and isinstance(tool, Tool | FunctionTool):
            raise ConfigurationError(f"{tool} has a name already; give one with a plain function only")
        if isinstance(tool, Tool):
            return self._add_tool(tool, handler, binding, doc)
        if handler is not None or binding is not None:
            raise ConfigurationError("a function is its own handler; give handler or binding with a Tool only")
        declared = tool if isinstance(tool, FunctionTool) else declare(tool, name, local_names=_names_around())
        return self._register(declared.tool, LocalBinding(declared.tool.id), doc, declared.handler)

    def _hides(self, tool: Tool) -> bool:
        return self._transforms is not None and self._transforms.hides(tool)

    def shown(self, tool: Tool) -> Tool:
        """Return a tool as it is shown; raises as `Transforms.apply` does."""
        return tool if self._transforms is None else self._transforms.apply(tool)

    def doc_of(self, shown: Tool, doc: DocEntry) -> DocEntry:
        """Return the documentation of a tool as it is shown: examples of its transform take the place of its own."""
        if self._transforms is None or not self._transforms.has_examples(shown):
            return doc
        return replace(doc, examples=())

    def _replace_stand_in(self, tool: Tool) -> None:
        if tool.id in self.stand_ins:
            self.stand_ins.discard(tool.id)
            self._discovery.index.unregister(tool.id)

    def _add_tool(
        self,
        tool: Tool,
        handler: Callable[[JSONDict], Any] | Handler | None,
        binding: Binding | None,
        doc: DocEntry | None,
    ) -> Tool:
        if (handler is None) == (binding is None):
            raise ConfigurationError(f"add({tool.id}) needs either a handler or a binding", tool_id=tool.id)
        if handler is not None and not isinstance(handler, Handler) and not callable(handler):
            raise ConfigurationError(f"the handler of {tool.id} must be a function, not {handler!r}")
        return self._register(tool, binding or LocalBinding(tool.id), doc, handler)

    def _register(
        self, tool: Tool, binding: Binding, doc: DocEntry | None, handler: Callable[[JSONDict], Any] | Handler | None
    ) -> Tool:
        is_hidden = self._hides(tool)
        shown = tool if is_hidden else self.shown(tool.check_schemas())
        if not is_hidden:
            self._replace_stand_in(shown)
            self._discovery.register(shown, binding, None if doc is None else self.doc_of(shown, doc))
        if handler is not None:  # of one that is hidden, too: it may be shown later
            is_another = self._local.has(tool.id)
            self._local.register(tool.id, handler)
            if is_another and not is_hidden:  # what is known of the former function goes with it
                self._discovery.index.unregister(shown.id, binding)
                self._discovery.index.register(shown, binding)
        if self._transforms is not None:
            added = AddedTool(tool=tool, binding=binding, doc=doc, shown="" if is_hidden else shown.id)
            self.added[added.key] = added
        return shown


def _doc_entry() -> type[DocEntry]:
    from toolexec.discovery.docs import DocEntry

    return DocEntry


def _names_around() -> JSONDict:
    """Return the local names where `Exec.add` was called; a function's annotations may need them."""
    frame = inspect.currentframe()
    for _ in range(3):  # out of here, of `Adding.add` and of `Exec.add`
        frame = frame.f_back if frame is not None else None
    return dict(frame.f_locals) if frame is not None else {}
