"""Programs that should have returned, awaited, converted or asked for something else, by what failed or was not found."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from benchmarks.repair import fixed, said
from benchmarks.repair_store import add_store_tools

from toolexec import Exec

ISSUES = 'issues = tools.github.list_issues(owner="acme", repo="api", per_page=9)["items"]\n'
FIXED = [
    (
        "python",
        "def f():\n    found = []\n    for n in (1, 2):\n        found.append(n)\nrows = f()\nlen(rows)",
        "return found",
    ),
    ("python", "async def main():\n    total = 2 + 3\nimport asyncio\nasyncio.run(main())", "return total"),
    ("python", "def main():\n    n = 1\nif __name__ == '__main__':\n    main()", "return n"),
    ("python", ISSUES + '[i["assignee"]["login"] for i in issues]', '(i["assignee"] or {}).get("login")'),
    ("python", ISSUES + 'sorted(issues, key=lambda i: i["closed_at"])', '(i["closed_at"] or "")'),
    ("python", ISSUES + 'issues.sort(key=lambda i: i["closed_at"])\nissues', '(i["closed_at"] or "")'),
    (
        "python",
        ISSUES + '[i["number"] for i in issues if "p1" in i["labels"]]',
        'in [each["name"] for each in i["labels"]]',
    ),
    ("python", ISSUES + 'known = ["kai"]\n[i for i in issues if i["user"] in known]', 'i["user"]["login"] in known'),
    ("python", "from decimal import Decimal\nDecimal(2) * 1.5", 'Decimal("1.5")'),
    ("python", "from decimal import Decimal\ntotal = Decimal(2)\ntotal += float('3')\ntotal", "Decimal('3')"),
    ("python", "from decimal import Decimal\nrate = 1.5\nrate * Decimal(2)", "Decimal(str(rate))"),
    (
        "python",
        ISSUES + "from datetime import datetime\nnow = datetime(2025, 4, 1)\n"
        '(now - datetime.fromisoformat(issues[0]["created_at"])).days',
        "now.astimezone()",
    ),
    (
        "python",
        ISSUES + 'from datetime import datetime\ndatetime.strptime(issues[0]["created_at"], "%Y-%m-%d").year',
        "%Y-%m-%dT%H:%M:%SZ",
    ),
    (
        "python",
        'rows = tools.docs.read_file(path="reports/sales.csv")\n[row["units"] for row in rows]',
        "csv.DictReader(rows.splitlines())",
    ),
    ("python", ISSUES + '", ".join(i["number"] for i in issues)', '", ".join(map(str, (i["number"] for i in issues)))'),
    ("python", "config = {'a': 1}\ncfg['a']", "`config` instead of `cfg`"),
    (
        "python",
        "async def f():\n    return 'a'\nasync def main():\n    return ''.join([f()])\nawait main()",
        "await f()",
    ),
    (
        "python",
        'c = tools.slack.list_channels()["channels"][1]\ntools.slack.post_message(channel=c["name"], text="x")',
        'c["id"]',
    ),
    ("javascript", "async function f() {\n  const total = 5;\n}\nreturn await f();", "return total;"),
    ("javascript", "async function main() {\n  return 5;\n}\nmain().then(console.log);", "return await main()"),
    ("javascript", "const found = { a: 1 };\nconsole.log(JSON.stringify(found, null, 2));", "return found"),
    (
        "javascript",
        (
            "let total = 0;\nfor (const i of (await tools.billing.list_invoices({})).data) {\n  total += i.amount;\n}\n"
            "return total.toFixed(2);"
        ),
        "total += Number(i.amount)",
    ),
    (
        "javascript",
        (
            'const { items } = await tools.github.list_issues({ owner: "a", repo: "b" });\n'
            'return items.filter((i) => i.labels.some((l) => l === "bug"));'
        ),
        'l.name === "bug"',
    ),
    ("javascript", "return [1].filter((n) => n > 0).length();", "`.length` instead of `.length()`"),
]


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An instance with the tools of a shop."""
    async with Exec() as ex:
        add_store_tools(ex)
        yield ex


@pytest.mark.parametrize(("language", "code", "new"), FIXED)
async def test_what_is_written_instead(ex: Exec, language: str, code: str, new: str) -> None:
    """A message has the text that repairs the program, and with that it runs."""
    result = await ex.execute_code(code, language=language)
    assert new in said(result)
    repaired = await ex.execute_code(*fixed(code, language, said(result))[:1], language=language)
    assert repaired.error is None
    assert repaired.value not in (None, [])


async def test_json_that_is_none(ex: Exec) -> None:
    """Text that is not JSON is shown as what it is, by the call that gave it."""
    result = await ex.execute_code('import json\njson.loads(tools.docs.read_file(path="notes/standup.md"))')
    assert '`tools.docs.read_file(path="notes/standup.md")` is text' in str(result.error)
    assert "`json.loads(tools" not in str(result.error)


async def test_a_call_that_finds_nothing_names_the_list(ex: Exec) -> None:
    """The failure of a tool that reads names the tool of its namespace that lists what there is."""
    result = await ex.execute_code('tools.docs.read_file(path="sales.csv")')
    assert "what there is: docs:list_files takes directory (string)" in str(result.error)


async def test_fields_that_a_constructor_declares(ex: Exec) -> None:
    """The parameters of a constructor of TypeScript that are fields are set, below the call of `super` too."""
    code = """class A { constructor(protected readonly a: number, public b = 2) {} }
class B extends A { constructor(private c: number) { super(1); } get all() { return [this.a, this.b, this.c]; } }
return new B(3).all;"""
    result = await ex.execute_code(code, language="typescript")
    assert result.value == [1, 2, 3]
