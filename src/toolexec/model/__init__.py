"""What a tool is: values only, no I/O."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.model.binding import (
        Binding,
        BindingKind,
        BindingSelector,
        LocalBinding,
        MCPBinding,
        ProviderBinding,
        binding_from_dict,
        prefer_local,
    )
    from toolexec.model.builder import ToolBuilder
    from toolexec.model.call import Progress, ProgressCallback, ToolCall
    from toolexec.model.content import ToolReply
    from toolexec.model.declare import FunctionTool, declare, tool
    from toolexec.model.handler import Handler, ToolContext, mapping_handler
    from toolexec.model.ids import ToolID, clean_segment
    from toolexec.model.origin import (
        HERE,
        ApprovalAnswer,
        ApprovalRequest,
        Approver,
        Caller,
        Origin,
        acting,
        current_origin,
    )
    from toolexec.model.schema import Schema, SchemaLike
    from toolexec.model.schema_compile import DRAFT_07, DRAFT_2020_12
    from toolexec.model.tags import normalize_tags
    from toolexec.model.tool import Icon, Tool, ToolAnnotations
    from toolexec.model.transform import ToolTransform
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.model.binding": (
                "Binding",
                "BindingKind",
                "BindingSelector",
                "LocalBinding",
                "MCPBinding",
                "ProviderBinding",
                "binding_from_dict",
                "prefer_local",
            ),
            "toolexec.model.builder": ("ToolBuilder",),
            "toolexec.model.call": ("Progress", "ProgressCallback", "ToolCall"),
            "toolexec.model.content": ("ToolReply",),
            "toolexec.model.declare": ("FunctionTool", "declare", "tool"),
            "toolexec.model.handler": ("Handler", "ToolContext", "mapping_handler"),
            "toolexec.model.ids": ("ToolID", "clean_segment"),
            "toolexec.model.origin": (
                "HERE",
                "ApprovalAnswer",
                "ApprovalRequest",
                "Approver",
                "Caller",
                "Origin",
                "acting",
                "current_origin",
            ),
            "toolexec.model.schema": ("Schema", "SchemaLike"),
            "toolexec.model.schema_compile": ("DRAFT_07", "DRAFT_2020_12"),
            "toolexec.model.tags": ("normalize_tags",),
            "toolexec.model.tool": ("Icon", "Tool", "ToolAnnotations"),
            "toolexec.model.transform": ("ToolTransform",),
        },
    )

    class _Model(ModuleType):
        """This package: `declare` and `tool` are functions, also once the modules of these names were imported."""

        def __setattr__(self, name: str, value: object) -> None:
            if name not in ("declare", "tool") or not isinstance(value, ModuleType):  # as the import system would
                super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Model

__all__ = [
    "DRAFT_07",
    "DRAFT_2020_12",
    "HERE",
    "ApprovalAnswer",
    "ApprovalRequest",
    "Approver",
    "Binding",
    "BindingKind",
    "BindingSelector",
    "Caller",
    "FunctionTool",
    "Handler",
    "Icon",
    "LocalBinding",
    "MCPBinding",
    "Origin",
    "Progress",
    "ProgressCallback",
    "ProviderBinding",
    "Schema",
    "SchemaLike",
    "Tool",
    "ToolAnnotations",
    "ToolBuilder",
    "ToolCall",
    "ToolContext",
    "ToolID",
    "ToolReply",
    "ToolTransform",
    "acting",
    "binding_from_dict",
    "clean_segment",
    "current_origin",
    "declare",
    "mapping_handler",
    "normalize_tags",
    "prefer_local",
    "tool",
]
