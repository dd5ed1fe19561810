"""The former gateway in this process; it stays for one release."""

from __future__ import annotations

from collections.abc import Collection

from toolexec.code.limits import Limits
from toolexec.code.tools import Tools
from toolexec.discovery.docs import DocStore
from toolexec.discovery.index import Index
from toolexec.run.runner import Runner

__all__ = ["DirectGateway"]


class DirectGateway(Tools):
    """`Tools` with its caps as two arguments; use `Tools(index, docs, runner, limits=Limits(...))` instead.

    Raises InvalidLimitsError for a cap below 0.
    """

    def __init__(
        self,
        index: Index,
        docs: DocStore,
        runner: Runner,
        *,
        max_tool_calls: int = 0,
        max_chain_steps: int = 0,
        allowed: Collection[str] | None = None,
    ) -> None:
        limits = Limits(max_tool_calls=max_tool_calls, max_chain_steps=max_chain_steps)
        super().__init__(index, docs, runner, limits=limits, allowed=allowed)
