"""Language → engine."""

from __future__ import annotations

import pytest

from toolexec.code.engine import Engines
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import ConfigurationError
from toolexec.model.languages import ALIASES
from toolexec.testing.gateway_testbed import GatewayTestbed


class Named:
    """An engine that gives its own name."""

    def __init__(self, name: str, *languages: str) -> None:
        self.name = name
        self.languages = frozenset(languages)

    async def execute(self, params: ExecuteRequest, tools: Tools) -> CodeResult:
        """Give the name."""
        return CodeResult(value=self.name)


@pytest.fixture
async def tools(testbed: GatewayTestbed) -> Tools:
    """Tools for code."""
    return Tools(testbed.index, testbed.docs, testbed.runner)


async def test_each_language_has_its_engine(tools: Tools) -> None:
    """The first of several gets it."""
    engines = Engines([Named("one", "python"), Named("two", "python", "wasm")])
    assert engines.languages == {"python", "wasm"}
    assert (await engines.execute(ExecuteRequest(code="", language="python"), tools)).value == "one"
    assert (await engines.execute(ExecuteRequest(code="", language="wasm"), tools)).value == "two"


async def test_an_unknown_language_is_refused(tools: Tools) -> None:
    """With the list of those that there are."""
    engines = Engines([Named("one", "wasm", "python")])
    with pytest.raises(ConfigurationError, match="unknown language 'cobol'; there are python, wasm"):
        await engines.execute(ExecuteRequest(code="", language="cobol"), tools)


def test_short_names() -> None:
    """Common short names stand for the names of engines."""
    assert ALIASES == {"py": "python", "js": "javascript", "sh": "bash", "golang": "go", "dsl": "workflow"}
