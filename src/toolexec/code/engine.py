"""What runs code of one or more languages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean


class Engine(Protocol):
    """Runs code that calls tools."""

    @property
    def languages(self) -> frozenset[str]:
        """What it runs."""
        ...

    async def execute(self, request: ExecuteRequest, tools: Tools, /) -> CodeResult:
        """Run `request.code`; language, timeout and limits are filled in.

        What the code did until it failed is in the result, its failure as `error`. Raises when nothing was run.
        Cancelling stops the code.
        """
        ...


class Engines:
    """Language → engine, itself an engine. The first of several for one language gets it."""

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._by_language: dict[str, Engine] = {}
        for engine in engines:
            for language in engine.languages:
                self._by_language.setdefault(language, engine)
        self.languages: frozenset[str] = frozenset(self._by_language)

    async def execute(self, request: ExecuteRequest, tools: Tools, /) -> CodeResult:
        """Run the code in the engine of its language; raises ConfigurationError for an unknown one."""
        engine = self._by_language.get(request.language)
        if engine is None:
            raise ConfigurationError(
                f"unknown language {request.language!r}; {did_you_mean(request.language, sorted(self.languages))}"
            )
        return await engine.execute(request, tools)
