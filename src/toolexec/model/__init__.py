"""What a tool is: values only, no I/O."""

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
from toolexec.model.schema import DRAFT_07, DRAFT_2020_12, Schema, SchemaLike
from toolexec.model.tags import normalize_tags
from toolexec.model.tool import Icon, Tool, ToolAnnotations

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
