"""The page of the settings, from their declarations."""

from __future__ import annotations

import inspect

from toolexec.config.blocks import BLOCKS, KEYS
from toolexec.config.template import toml_value

_HEAD = """\
# Settings

Look up what can be set, by its name in `toolexec.toml`. Every setting has a default.

```sh
toolexec config keys
```

A setting `block.name` is `name` in the table `[block]` of the file, `TOOLEXEC_BLOCK__NAME` in the environment, and
`--set block.name=VALUE` on the command line. Variables override the file, and flags override both. Times and sizes may
have units: `"5m"`, `"4M"`. See [configuration](../config.md) for files, secrets, servers, providers and toolsets.
"""


def settings_page() -> str:
    """Return the page: a section for each block, with a row for each setting."""
    lines = [_HEAD]
    for block, kind in BLOCKS.items():
        keys = [key for key in KEYS.values() if key.block == block]
        if not keys:
            continue
        lines += [f"## {block}", "", " ".join((inspect.getdoc(kind) or "").split()), ""]
        lines += ["| Setting | Kind | Default | What it does |", "|---|---|---|---|"]
        for key in keys:
            note = " Never shown." if key.secret else ""
            of, default = _cell(key.kind.name), _cell(toml_value(key.default))
            lines.append(f"| `{key.name}` | {of} | `{default}` | {_cell(key.help)}{note} |")
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
