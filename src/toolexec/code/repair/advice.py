"""What the author of a program that failed should do instead, where its error alone does not say.

A program is mostly written by a model that expects another machine: one with a network, with the packages that it knows
from its training, or with Node.js. Advice says only what is true of the sandbox that ran the program and of those that
the runtime has beside it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from toolexec.code.repair.arguments import about_arguments
from toolexec.code.repair.calls import about_calls
from toolexec.code.repair.chains import about_chains
from toolexec.code.repair.comprehensions import about_comprehensions
from toolexec.code.repair.failure import Failure
from toolexec.code.repair.fences import has_fence
from toolexec.code.repair.held import about_held
from toolexec.code.repair.javascript_errors import about_javascript_errors
from toolexec.code.repair.javascript_marks import about_javascript_marks
from toolexec.code.repair.lacks import missing_module, needed_process
from toolexec.code.repair.languages import about_language, about_python_forms
from toolexec.code.repair.library_names import about_library_names
from toolexec.code.repair.missing_imports import about_missing_imports
from toolexec.code.repair.near_methods import about_near_methods
from toolexec.code.repair.near_tools import about_near_tools
from toolexec.code.repair.operands import about_operands
from toolexec.code.repair.other_names import about_foreign, about_other_names
from toolexec.code.repair.own_dicts import about_own_dicts
from toolexec.code.repair.own_imports import own_import
from toolexec.code.repair.own_names import about_own_names
from toolexec.code.repair.python_awaits import about_python_awaits
from toolexec.code.repair.python_facts import facts_of_python, read_held
from toolexec.code.repair.refusals import about_refusals
from toolexec.code.repair.results import about_results
from toolexec.code.repair.shapes import VALUE
from toolexec.code.repair.source import instead
from toolexec.code.repair.swallowed import about_swallowed
from toolexec.code.repair.syntax import about_syntax
from toolexec.code.repair.unknown_keys import about_unknown_keys
from toolexec.code.repair.unused_imports import unused_import, unused_package
from toolexec.code.tools import Tools

_TOOLS: Final = "call a tool instead; `tools.search('...')` finds one"
_FETCH: Final = "there is no network: call a tool that fetches; `tools.search('fetch a URL')` finds it if there is one"
_REACHED: Final = "use `urllib.request` for the hosts that can be reached"
_DATABASE: Final = f"sqlite3 is there for data of the program's own; for a database elsewhere {_TOOLS}"
_SERVER: Final = "a program cannot serve anything: return the value"
_TABLES: Final = "use `csv`, `json`, `statistics` and `sqlite3`, or plain lists and dicts"
_NUMBERS: Final = "use `math`, `statistics`, `fractions` and lists"
_LEARNING: Final = f"no model can be loaded or trained here; {_TOOLS}"
_CHART: Final = "nothing can be drawn here: return the numbers"
_PARSE: Final = "use `html.parser` or `xml.etree.ElementTree`"
_TIME: Final = "use `datetime` and `zoneinfo`: `datetime.fromisoformat(text)` reads a time"
_ZONES: Final = "use `datetime` and `zoneinfo`: `zoneinfo.ZoneInfo(name)` is a time zone"

INSTEAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(("requests", "httpx", "aiohttp", "urllib3", "websockets", "websocket", "paramiko"), _FETCH),
    **dict.fromkeys(("openai", "anthropic", "boto3", "botocore", "google", "googleapiclient", "slack_sdk"), _TOOLS),
    **dict.fromkeys(("github", "git", "stripe", "twilio", "mcp", "langchain"), _TOOLS),
    **dict.fromkeys(
        ("selenium", "playwright", "pyppeteer"),
        "there is no browser: call a tool that has one; `tools.search('open a web page')` finds it if there is one",
    ),
    **dict.fromkeys(("sqlalchemy", "psycopg2", "psycopg", "pymysql", "MySQLdb", "redis", "pymongo"), _DATABASE),
    **dict.fromkeys(("flask", "fastapi", "django", "starlette", "uvicorn", "streamlit", "gradio"), _SERVER),
    **dict.fromkeys(("pandas", "polars", "pyarrow", "openpyxl", "xlsxwriter"), _TABLES),
    **dict.fromkeys(("numpy", "scipy", "sympy"), _NUMBERS),
    **dict.fromkeys(("sklearn", "torch", "tensorflow", "keras", "transformers", "xgboost", "nltk", "spacy"), _LEARNING),
    **dict.fromkeys(("matplotlib", "seaborn", "plotly"), _CHART),
    **dict.fromkeys(("bs4", "lxml", "html5lib"), _PARSE),
    **dict.fromkeys(("dateutil", "arrow", "pendulum"), _TIME),
    **dict.fromkeys(("pytz", "tzlocal"), _ZONES),
    **dict.fromkeys(("PIL", "cv2"), f"images cannot be read or drawn here; {_TOOLS}"),
    "yaml": "use `json` or `tomllib`; for YAML, read its lines",
    "toml": "use `tomllib`",
    "dotenv": "the environment is in `os.environ`, and there is no .env file",
    "click": "arguments are in `sys.argv`; `argparse` reads them",
    "typer": "arguments are in `sys.argv`; `argparse` reads them",
    "rich": "use `print`",
    "tqdm": "loop without it, and use `print`",
    "tabulate": "use f-strings",
    "colorama": "use `print`",
    "pydantic": "use `dataclasses`",
    "attr": "use `dataclasses`",
    "attrs": "use `dataclasses`",
    "jinja2": "use f-strings or `string.Template`",
    "simplejson": "use `json`",
    "ujson": "use `json`",
    "orjson": "use `json`",
    "regex": "use `re`",
    "nest_asyncio": "leave it out: a program may await at its top",
    "tenacity": "try again in a loop",
    "cryptography": "`hashlib`, `hmac` and `secrets` are there",
    "psutil": "there are no other processes to look at",
    "pytest": "use `assert`, or `unittest`",
}
"""Module → what a program uses where it is not there."""

_SCIENCE: Final = frozenset(
    {"numpy", "pandas", "scipy", "sklearn", "statsmodels", "sympy", "networkx", "matplotlib", "seaborn"}
)
_NETWORK: Final = frozenset(name for name, text in INSTEAD.items() if text is _FETCH)
_LONGEST_LINE: Final = 1_000
"""Characters of a line beyond which nothing is looked for in it: a program must not keep its host busy with one."""

_NO_PROCESS: Final = "no process can be started in this sandbox: do it in Python, or call a tool that does it"
_NO_MODULES: Final = (
    "this JavaScript has no modules, from npm or of Node.js: `tools`, `files`, `console`, `env`, `args` and `stdin` "
    'are there without an import; files are `files.read("name")` and `files.write("name", text)`'
)
_NOT_DEFINED: Final = {
    "require": _NO_MODULES,
    "module": "a program exports nothing, it has a value",
    "exports": "a program exports nothing, it has a value: return that",
    "fetch": _FETCH.replace("tools.search", "await tools.search"),
    "XMLHttpRequest": _FETCH.replace("tools.search", "await tools.search"),
    "axios": _FETCH.replace("tools.search", "await tools.search"),
    "process": "this is not Node.js: `env`, `args` and `stdin` are there by these names",
    "Buffer": "this is not Node.js: use Uint8Array, `atob` and `btoa`",
    "Intl": "there is no Intl here: use `toFixed`, `padStart` and template strings, or format the value outside",
    "URL": "there is no URL here: split the text, or use `encodeURIComponent`",
    "URLSearchParams": "there is no URLSearchParams here: use `encodeURIComponent` and `join`",
    "TextEncoder": "there is no TextEncoder here: use `encodeURIComponent`",
    "crypto": "there is no crypto here: use `Math.random`",
    "Deno": "this is not Deno: `env`, `args` and `stdin` are there by these names",
    "document": "there is no browser and no DOM",
    "window": "there is no browser and no DOM",
}
_NOWHERE: Final = frozenset({"module", "exports", "document", "window", "Deno", "XMLHttpRequest", "axios"})
"""What there is not in Node.js either, where the program is not a module."""

_OF_NODE: Final = {"process.env": "env", "process.argv": "args", "module.exports =": "return"}
"""What programs for Node.js write, and what they write here."""

_OWN: Final = "`tools` is there without an import"
_NO_VARIABLE: Final = re.compile(r"KeyError: '(\w+)'")
_ENVIRONMENT: Final = re.compile(r"\benviron\b|\benv\[")
_NO_FILE: Final = (
    "a program has only its own files: send it along with the program, or call a tool that reads it; "
    "`tools.search('read a file')` finds it if there is one"
)
_NO_PACKAGE: Final = "is not in this sandbox, and nothing can be installed; use what Node.js itself has, or `tools`"
_PACKAGE: Final = re.compile(r"(?:\bfrom\s*|\brequire\(\s*|^[ \t]*import\s*)['\"]([\w@./:-]+)['\"]", re.MULTILINE)
_PACKAGES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("axios", "node-fetch", "got", "undici", "http", "https"), _NOT_DEFINED["fetch"]),
    **dict.fromkeys(("date-fns", "moment", "dayjs", "luxon"), "use `new Date(text)` and its methods"),
    **dict.fromkeys(("lodash", "underscore", "ramda"), "use `map`, `filter`, `reduce` and `Object.entries`"),
    **dict.fromkeys(("uuid", "nanoid", "crypto"), "use `Math.random`"),
    **dict.fromkeys(("zod", "ajv", "joi"), "check it with `typeof`"),
    **dict.fromkeys(("openai", "@anthropic-ai", "@octokit", "stripe", "googleapis"), _TOOLS),
    "path": "join strings with `/`",
    "util": "`await` what gives a promise",
}
"""Package of npm or Node.js → what a program uses where there is none."""

_EXPORT: Final = re.compile(r"^export\b(?:[ \t]+default\b)?", re.MULTILINE)
_IMPORT: Final = re.compile(r"^[ \t]*import\b[^(\n]*['\"]", re.MULTILINE)
_REFUSED: Final = re.compile(r"(?:InputValidation|Tool|ToolNotFound|Handler)Error: ")
_MAY_BE_NOTHING: Final = re.compile(r"is a required property|undefined|not a function|is NaN|not iterable")
_LENGTH: Final = re.compile(r"`[^`]+` has \d+ items: the last is")
_METHOD: Final = re.compile(r"has no `\w+`: `\w+\(\)`")
_GROUP: Final = re.compile(r"ExceptionGroup: [^\n]*? sub-exceptions?\): ((\w+): .*?)(?: \(line \d+\))?(?:; \w+: |$)")
_UNDEFINED: Final = re.compile(r"ReferenceError: '?(\w+)'? is not defined")
_NODE_MISSING: Final = re.compile(r"Cannot find (?:module|package) '([^']+)'")


def advise(failure: Failure, elsewhere: Iterable[tuple[str, str]] = (), tools: Tools | None = None) -> str:
    """Return what to do instead; "" where nothing can be said. *elsewhere* are the sandboxes that have the missing
    module, or processes: the kind of each, and the language to ask for. *tools* are those of the run.
    """
    if len(failure.source) > _LONGEST_LINE:
        failure = replace(failure, source="")
    if group := _GROUP.match(failure.message):
        failure = replace(failure, kind=group[2], message=group[1])
    near = about_near_tools(failure, tools) if failure.is_isolated and tools is not None else ""
    if failure.is_isolated and (advice := _about_machine(failure, elsewhere)):
        return f"{advice}; {near}" if near else advice
    if failure.kind == "SyntaxError" and has_fence(failure.code):
        return "the code has Markdown in it; send the program alone, without text and ``` around it"
    advice = (
        about_own_names(failure)
        or about_own_dicts(failure, tools)
        or about_missing_imports(failure, tools)
        or about_python_awaits(failure, tools)
        or about_calls(failure, tools)
    )
    advice = advice or about_arguments(failure, tools) or about_chains(failure)
    advice = (
        advice
        or about_operands(failure)
        or about_comprehensions(failure)
        or about_syntax(failure)
        or about_python_forms(failure)
        or about_javascript_marks(failure)
        or about_library_names(failure)
    )
    advice = (
        advice
        or about_foreign(failure)
        or about_javascript_errors(failure, tools)
        or about_near_methods(failure, is_same=True)
    )
    advice = advice or about_results(failure, tools) or about_other_names(failure)
    advice = advice or about_language(failure) or about_near_methods(failure)
    if not advice and failure.language == "javascript":
        advice = _about_javascript(failure)
    if tools is not None and failure.language == "javascript" and " instead of " not in advice:
        unknown = next(about_unknown_keys(failure.code, tools), "") if _MAY_BE_NOTHING.search(failure.message) else ""
        advice = f"{advice}; {unknown}" if advice and unknown else advice or unknown
    swallowed = about_swallowed(tools) if tools is not None and not _REFUSED.match(failure.message) else ""
    if swallowed and " instead of " not in advice:
        return f"{advice}; {swallowed}" if advice else swallowed
    if near:
        return f"{advice}; {near}" if advice else near
    facts = _facts_of(failure, tools)
    if facts:
        advice = _with_facts(advice, facts)
    if tools is not None and not advice and (refusal := about_refusals(failure, tools)):
        return refusal
    if tools is None or " instead of " in advice:
        return advice
    held = about_held(failure, tools, advice)
    return f"{advice}; {held}" if advice and held else advice or held


def _facts_of(failure: Failure, tools: Tools | None) -> Sequence[str]:
    """Return what the program itself has reported of the values that it failed with."""
    if failure.held is None or tools is None or failure.language != "python":
        return failure.facts
    return facts_of_python(failure, read_held(failure.held), tools)


def _with_facts(advice: str, facts: Sequence[str]) -> str:
    """Return advice with the facts beside it, and without what contradicts them: it is what a reader of the program
    makes of it, they are what was there."""
    if _LENGTH.match(advice) or (VALUE in advice and _METHOD.search(facts[0])):
        advice = ""
    if " instead of " in advice:
        return advice if " instead of " in facts[0] else f"{advice}; {facts[0]}"
    if " instead of " in facts[0]:
        return facts[0]
    return "; ".join([*([advice] if advice else []), *(each for each in facts if each not in advice)])


def _about_machine(failure: Failure, elsewhere: Iterable[tuple[str, str]]) -> str:
    """What the program expected of its machine: a package, processes, files."""
    if module := missing_module(failure):
        return _about_module(module, failure, elsewhere)
    if needed_process(failure):
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in elsewhere))
        return f"{_NO_PROCESS}; they can be started in: {kinds}" if kinds else _NO_PROCESS
    if (named := _NO_VARIABLE.match(failure.message)) and _ENVIRONMENT.search(failure.source):
        return f"the environment has no `{named[1]}`: it has only what is sent with the program, as `env`"
    is_missing = failure.kind == "FileNotFoundError" and "No such file" in failure.message
    return _NO_FILE if is_missing else ""


def _about_module(module: str, failure: Failure, elsewhere: Iterable[tuple[str, str]]) -> str:
    advice = INSTEAD.get(module, "use the standard library, or `tools`")
    own = own_import(failure.code, "python")
    if own:
        advice = f"{_OWN}: leave `{own}` out"
    if failure.has_network and module in _NETWORK:
        advice = _REACHED
    places = [
        f"language={language!r} has it" if kind == failure.backend else f"the sandbox {kind} has it ({language})"
        for kind, language in elsewhere
    ]
    where = f"; {', '.join(places)}" if places else ""
    if not places and module in _SCIENCE and failure.backend == "wasm":
        where = "; the extra `science` (`pip install 'toolexec[science]'`) adds language='python-science', with it"
    final = "" if failure.has_network else ", and nothing can be installed"
    unused = unused_import(failure.code, module) if not own else ""
    without = f"; nothing of it is used: leave `{unused}` out" if unused else ""
    return f"{module} is not in this sandbox{final}: {advice}{where}{without}"


def _of_package(code: str) -> str:
    """Return what there is in the place of the first package of npm that *code* wants."""
    found = _PACKAGE.search(code)
    advice = _PACKAGES.get(found[1].removeprefix("node:").partition("/")[0], "") if found is not None else ""
    return f"; for `{found[1]}`: {advice}" if found is not None and advice else ""


def _about_javascript(failure: Failure) -> str:
    own = own_import(failure.code, failure.language)
    if own and failure.kind in ("SyntaxError", "Error", "ReferenceError", "TypeError"):
        return f"{_OWN}: leave `{own}` out"
    if failure.kind == "SyntaxError" and failure.backend == "wasm" and not own and _IMPORT.search(failure.code):
        unused = unused_package(failure.code)
        return f"{_NO_MODULES}{f'; leave `{unused}` out' if unused else _of_package(failure.code)}"
    if failure.kind == "SyntaxError" and (exported := _EXPORT.search(failure.code)):
        return f"a program exports nothing, it has a value: leave `{exported[0]}` out"
    is_alone = failure.is_isolated
    if is_alone and failure.backend != "wasm" and (found := _NODE_MISSING.search(failure.message)):
        return f"{found[1]} {_NO_PACKAGE}"
    if is_alone and failure.message.startswith("TypeError: fetch failed") and not failure.has_network:
        return _NOT_DEFINED["fetch"]
    found = _UNDEFINED.match(failure.message) if failure.kind == "ReferenceError" else None
    if found is not None and (failure.backend == "wasm" or found[1] in _NOWHERE):
        written = next((old for old in _OF_NODE if found[1] in old and old in failure.code), "")
        advice = _NOT_DEFINED.get(found[1], "")
        if found[1] == "require" and (unused := unused_package(failure.code)):
            return f"{advice}: leave `{unused}` out, as nothing of it is used"
        advice += _of_package(failure.code) if found[1] == "require" else ""
        return f"{advice}: {instead(written, _OF_NODE[written])}" if written else advice
    return ""
