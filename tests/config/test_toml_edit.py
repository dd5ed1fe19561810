"""Changes to a TOML file of a person."""

from __future__ import annotations

import tomllib

import pytest

from toolexec.config.toml_edit import remove_table, set_table

CONFIG = '''# my settings
model = "m" # the best

[mcp_servers.git] # versions
command = "git-mcp"
args = [
    "--a", # first
    "[mcp_servers.x]",
]

[mcp_servers.git.env]
KEY = """
[mcp_servers.toolexec]
"""

[tui]
theme = "dark"
'''
PATH = ("mcp_servers", "toolexec")


def test_a_table_is_added_at_the_end() -> None:
    """All that was there stays, to the character."""
    changed = set_table(CONFIG.replace("\n[mcp_servers.toolexec]\n", "\n"), PATH, {"command": "/x", "args": ["serve"]})
    assert changed.endswith('theme = "dark"\n\n[mcp_servers.toolexec]\ncommand = "/x"\nargs = ["serve"]\n')
    assert changed.startswith('# my settings\nmodel = "m" # the best\n')
    assert set_table("", PATH, {"command": "/x"}) == '[mcp_servers.toolexec]\ncommand = "/x"\n'
    assert set_table("a = 1", PATH, {"b": 2}) == "a = 1\n\n[mcp_servers.toolexec]\nb = 2\n"


def test_keys_are_changed_where_they_are() -> None:
    """A value over several lines is replaced as a whole; one that is right already keeps its comments."""
    changed = set_table(CONFIG, ("mcp_servers", "git"), {"command": "git-mcp", "args": ["b"], "env_vars": ["A"]})
    assert tomllib.loads(changed)["mcp_servers"]["git"]["args"] == ["b"]
    assert changed.startswith(
        '# my settings\nmodel = "m" # the best\n\n[mcp_servers.git] # versions\nenv_vars = ["A"]\n'
    )
    assert 'command = "git-mcp"\nargs = ["b"]\n\n[mcp_servers.git.env]' in changed
    same = set_table(CONFIG, ("mcp_servers", "git"), {"args": ["--a", "[mcp_servers.x]"]})
    assert same == CONFIG


def test_a_table_goes_with_those_in_it() -> None:
    """The others stay, with the comments above them."""
    commented = CONFIG.replace("[tui]", "# colors\n[tui]")
    assert remove_table(commented, ("mcp_servers", "git")).endswith('# the best\n\n# colors\n[tui]\ntheme = "dark"\n')
    changed = remove_table(CONFIG.replace("\n[mcp_servers.toolexec]\n", "\nx\n"), ("mcp_servers", "git"))
    assert changed == '# my settings\nmodel = "m" # the best\n\n[tui]\ntheme = "dark"\n'


@pytest.mark.parametrize("header", ['[mcp_servers."toolexec"]', "[ mcp_servers . 'toolexec' ]  # x"])
def test_a_header_is_found_in_any_spelling(header: str) -> None:
    """Quotes and blanks in a header make no difference."""
    text = f"{header}\ncommand = 1\n"
    assert set_table(text, PATH, {"command": 2}) == f"{header}\ncommand = 2\n"
    assert remove_table(text, PATH) == ""


def test_windows_line_ends_stay() -> None:
    """A file with them gets no others."""
    changed = set_table("a = 1\r\n", PATH, {"b": 2, "c": 3})
    assert changed.count("\n") == changed.count("\r\n") == 5
