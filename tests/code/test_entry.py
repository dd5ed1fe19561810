"""Programs that leave the call of their function to a host, and tools by their IDs in other spellings."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from benchmarks.repair_store import add_store_tools

from toolexec import Exec
from toolexec.code.repair.entry import called


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An instance with the tools of a shop."""
    async with Exec() as ex:
        add_store_tools(ex)
        yield ex


COUNT = "  const { channels } = await tools.slack.list_channels();\n  return channels.length;\n}"
UNCALLED = [
    ("javascript", "async () => {\n" + COUNT),
    ("javascript", "async (tools) => {\n" + COUNT + ";"),
    ("javascript", "async function main() {\n" + COUNT),
    ("javascript", "export async function run() {\n" + COUNT),
    ("javascript", "const main = async () => {\n" + COUNT + ";\n"),
    ("javascript", "export default async function countAll() {\n" + COUNT),
    ("javascript", "export default async () => {\n" + COUNT),
    ("javascript", "module.exports = async function () {\n" + COUNT),
    ("typescript", "export default async function run(): Promise<number> {\n" + COUNT),
    ("python", 'async def main():\n    return len((await tools.slack.list_channels())["channels"])'),
    ("python", 'import json\n\ndef main() -> int:\n    return len(tools.slack.list_channels()["channels"])\n'),
]
DOING = [
    ("javascript", "async function main() { return 1; }\nmain();"),
    ("javascript", "export default async function run() {\n  return 1;\n}\nawait tools.slack.list_channels();"),
    ("javascript", "const n = await tools.slack.list_channels();\nfunction main() {\n  return 1;\n}"),
    ("javascript", "function helper() {\n  return 1;\n}"),
    ("javascript", "function main(a) {\n  return a;\n}"),
    ("python", "def main():\n    return 1\nmain()"),
    ("python", "print(1)\ndef main():\n    return 1"),
    ("python", "def main(a):\n    return a"),
    ("python", "def helper():\n    return 1"),
    ("python", "@cache\ndef main():\n    return 1"),
]
SPELLINGS = [
    'call_tool("slack.list_channels", {})',
    'tools.run("slack/list_channels", {})',
    'tools.run("slack__list_channels")',
    'tools.run("mcp__slack__list_channels")',
    'tools.run("listChannels")',
    "mcp__slack__list_channels()",
    "mcp.slack.list_channels()",
    "codemode.list_channels()",
]


@pytest.mark.parametrize(("language", "code"), UNCALLED)
async def test_a_function_that_nothing_calls(ex: Exec, language: str, code: str) -> None:
    """The value of a program that is a function, or defines the one that does it all, is what that returns."""
    result = await ex.execute_code(code, language=language)
    assert result.error is None
    assert result.value == 3
    assert any("nothing calls the function" in note for note in result.notes)


async def test_a_function_of_a_session_is_for_later(ex: Exec) -> None:
    """Nothing calls it, so that nothing is done twice; a note says how to."""
    async with ex.session() as session:
        defined = await session.execute_code("async def main():\n    return len(await tools.slack.list_channels())")
        assert (defined.error, defined.value, len(defined.tool_calls)) == (None, None, 0)
        [note] = [note for note in defined.notes if "nothing calls the function" in note]
        assert "`await main()`" in note
        later = await session.execute_code("await main()")
        assert [call.tool_id for call in later.tool_calls] == ["slack:list_channels"]


@pytest.mark.parametrize(
    ("code", "is_for_later"),
    [("async function main() {\n" + COUNT, True), ("async () => {\n" + COUNT, False)],
    ids=["with a name", "without"],
)
def test_in_a_session_only_what_has_a_name_is_for_later(code: str, is_for_later: bool) -> None:
    """No later program could call another one."""
    entry = called(code, "javascript")
    assert entry is not None
    assert entry.has_name is is_for_later


@pytest.mark.parametrize(("language", "code"), DOING)
def test_a_program_that_does_something_itself(language: str, code: str) -> None:
    """A program that does something at its top, or only has a function for later, stays as it is."""
    assert called(code, language) is None


def test_lines_and_columns_stay() -> None:
    """Lines and columns of an exported function stay."""
    code = "export const a = 1;\nexport default async () => {\n  return a;\n}"
    entry = called(code, "javascript")
    assert entry is not None
    old, new = code.splitlines(), entry.code.splitlines()
    assert [len(line) for line in old] == [len(line) for line in new[: len(old)]]
    assert new[-1] == entry.call == "main()"


@pytest.mark.parametrize("code", SPELLINGS)
async def test_a_tool_by_an_id_in_another_spelling(ex: Exec, code: str) -> None:
    """A tool is found by its ID with other marks in it, with a prefix of MCP clients, and by its name alone."""
    result = await ex.execute_code(code)
    assert result.error is None
    assert [call.tool_id for call in result.tool_calls] == ["slack:list_channels"]


async def test_an_id_that_several_tools_may_have(ex: Exec) -> None:
    """An ID in another spelling that fits several tools calls none of them."""
    result = await ex.execute_code('tools.run("list")')
    assert result.error is not None
    assert "no tool list" in str(result.error)
