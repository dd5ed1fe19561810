"""`toolexec export`: the tools as a vendor's API takes them, as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.cli.exit_codes import FAILED, OK
from toolexec.cli.finding import connect, mention, unavailable, unavailable_data
from toolexec.cli.session import Session
from toolexec.cli.terminal import to_json
from toolexec.cli.text_files import write_text
from toolexec.discovery.view import browsable
from toolexec.errors import ConfigurationError
from toolexec.model.json_value import JSONDict
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.adapter.export import ToolSearch, VendorFormat, VendorTools
    from toolexec.discovery import Filters

_MAX_SHOWN = 50


async def export(
    session: Session,
    format: VendorFormat,
    filters: Filters | None,
    file: Path | None,
    *,
    strict: bool,
    describe: bool,
    search: ToolSearch | None,
) -> int:
    """Print the list of tools for a request, or write it to *file*; on stderr say what is lost in it.

    With `--json` the document has the names and the warnings, too. Gives 1 when a tool cannot be exported at all.
    Raises ConfigurationError for a namespace without tools, a combination that does not exist, and a file that cannot
    be written.
    """
    await connect(session)
    screen, known = session.screen, browsable(session.ex.index).namespaces()
    if filters is not None and filters.namespace is not None and filters.namespace not in known:
        names = ", ".join(visible_line(name) for name in known if name)
        raise ConfigurationError(f"no tools in the namespace {filters.namespace!r}; namespaces: {names or 'none'}")
    done = await session.ex.export_tools(format, filters=filters, strict=strict, describe=describe, search=search)
    down = unavailable(session)
    if file is not None:
        write_text(file, f"{to_json(done.tools)}\n")
    if screen.as_json:
        data = _data(done, file)
        screen.document(data | unavailable_data(down))
    elif file is None:
        screen.exact(to_json(done.tools))
    else:
        one = len(done.converted) == 1
        screen.note(f"{len(done.converted)} {'tool is' if one else 'tools are'} in {file}")
    if not screen.as_json:
        for warning in done.warnings[:_MAX_SHOWN]:
            screen.note(f"warning: {warning}", style="yellow")
        if len(done.warnings) > _MAX_SHOWN:
            screen.note(f"and {len(done.warnings) - _MAX_SHOWN} more warnings; --json has them all", style="yellow")
        for tool_id, error in done.skipped.items():
            screen.note(f"left out: {tool_id}: {error}", style="red")
        mention(session, down)
    return FAILED if done.skipped else OK


def _data(done: VendorTools, file: Path | None) -> JSONDict:
    return {
        "format": done.format,
        **({"file": str(file)} if file is not None else {"tools": done.tools}),
        "names": done.names.to_dict(),
        "warnings": [warning.to_dict() for warning in done.warnings],
        "skipped": {tool_id: error.to_dict() for tool_id, error in done.skipped.items()},
    }
