"""Programs as tools: git and Python, without a shell; whatever a model writes into an argument is only an argument.

    python examples/commands.py

Prints:

    git:commit(message) destructive
    git:log(count, path) read_only
    text:count(files, words) read_only
    committed: Say hello; rm -rf / $(id)
    history: ['Say hello; rm -rf / $(id)']
    refused: '--output=/etc/passwd' begins with '-', so git would read it as an option
    streamed: hello.txt 2
    streamed: other.txt 3
    failed: exit code 1, retryable: False
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

from toolexec import Exec, Gate, Policy, Rule
from toolexec.errors import InputValidationError

GIT = {
    "log": {
        "description": "Lists the subjects of the latest commits.",
        "argv": ["git", "log", "--format=%s", ["-n", "{count}"], "{path}"],
        "parameters": {"count": {"type": "integer", "minimum": 1}, "path": {"default": "."}},
        "output": "lines",
        "read_only": True,
    },
    "commit": {
        "description": "Commits everything.",
        "argv": ["git", "commit", "-q", "-a", "--message={message}"],
        "exit_codes": {"1": "there is nothing to commit"},
        "destructive": True,
    },
}
COUNT = """
import pathlib, sys
for name in sys.argv[2:]:
    print(name, len(pathlib.Path(name).read_text().split()) if sys.argv[1] == "--words" else "?")
"""


def repository(directory: str) -> dict[str, str]:
    """Make a repository with two files; gives the environment that keeps git to itself."""
    for name, text in (("hello.txt", "hello world"), ("other.txt", "one two three")):
        (Path(directory) / name).write_text(text)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=directory, check=True)
    who = {"NAME": "Ada", "EMAIL": "ada@example.com"}
    return {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in who.items()}


async def main(directory: str) -> None:
    count = {
        "description": "Counts the words of files.",
        "argv": [sys.executable, "-c", COUNT, "{words?--words}", "{files...}"],
        "output": "lines",
        "read_only": True,
    }
    # Commits are marked as destructive: without this rule, each would need approval.
    rule = Rule("allow", tools="git:commit", reason="the directory is ours, and new")
    async with Exec(gate=Gate(policy=Policy([rule]))) as ex:
        await ex.add_commands("git", tools=GIT, cwd=directory, env=repository(directory))
        await ex.add_commands("text", tools={"count": count}, cwd=directory)
        for entry in sorted(ex.index.tools(), key=lambda entry: entry.tool.id):
            names = sorted(entry.tool.input_schema.to_json()["properties"])
            print(f"{entry.tool.id}({', '.join(names)})", entry.tool.annotations.on()[0])

        message = "Say hello; rm -rf / $(id)"
        await ex.run_tool("git:commit", {"message": message})
        print("committed:", message)
        print("history:", (await ex.run_tool("git:log", {"count": 3})).value)
        try:
            await ex.run_tool("git:log", {"path": "--output=/etc/passwd"})
        except InputValidationError as error:
            print("refused:", error.violations[0].message)

        async for event in ex.stream_tool("text:count", {"files": ["hello.txt", "other.txt"], "words": True}):
            if event.kind == "chunk":
                print("streamed:", event.data)

        again = await ex.run_tool("git:commit", {"message": "Nothing"})
        print(f"failed: exit code {again.error.details['exit_code']}, retryable: {again.error.retryable}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        asyncio.run(main(place))
