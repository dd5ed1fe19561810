"""HTML of results for notebooks, in which all text is escaped.

Values, descriptions and errors come from tools and are not trusted: no markup, link, script or style of theirs reaches
the page, and what hides in a string is shown. Images are shown if they are of a kind that has no scripts, and small.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, Final

from toolexec.model.visible import visible

_MOST_CHARACTERS: Final = 20_000
_MOST_CELL: Final = 400
_MOST_ROWS: Final = 100
_MOST_COLUMNS: Final = 20
_MOST_IMAGE: Final = 10_000_000
_IMAGES: Final = {
    "image/png": (b"\x89PNG\r\n\x1a\n",),
    "image/jpeg": (b"\xff\xd8\xff",),
    "image/gif": (b"GIF87a", b"GIF89a"),
    "image/webp": (b"RIFF",),
}
"""The kinds of images that are shown, and how each begins. SVG is not among them, as it may have scripts."""
_CELL: Final = "text-align:left;vertical-align:top"
_PRE: Final = "white-space:pre-wrap;overflow-wrap:anywhere;margin:.3em 0"
_COLORS: Final = {"ok": "#2a7f3f", "failed": "#b3261e", "": "#5f6368"}


def text(value: object, limit: int = _MOST_CHARACTERS) -> str:
    """Return any text as HTML: escaped, cut at *limit* characters, with what hides in it shown."""
    return escape(visible(str(value), limit))


def badge(word: str, kind: str = "") -> str:
    """Return a word in bold; *kind* is `ok`, `failed` or empty."""
    return f'<strong style="color:{_COLORS[kind]}">{text(word)}</strong>'


def block(value: object) -> str:
    """Return text whose lines and blanks stay."""
    return f'<pre style="{_PRE}">{text(value)}</pre>'


def lines(items: Iterable[object]) -> str:
    """Return a list; items beyond 100 are left out."""
    found = [*islice(items, _MOST_ROWS + 1)]
    shown = [text(each) for each in found[:_MOST_ROWS]] + (["…"] if len(found) > _MOST_ROWS else [])
    return f"<ul>{''.join(f'<li>{each}</li>' for each in shown)}</ul>"


def card(*parts: str) -> str:
    """Return parts that are HTML already, one below the other."""
    return f"<div>{''.join(f'<div>{part}</div>' for part in parts if part)}</div>"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, total: int | None = None) -> str:
    """Return a table; cells are text, or JSON. Of *total* rows those beyond 100 are only counted."""
    shown = [row for row, _ in zip(rows, range(_MOST_ROWS), strict=False)]
    head = "".join(f'<th style="{_CELL}">{text(each, _MOST_CELL)}</th>' for each in headers)
    body = "".join(f"<tr>{''.join(map(_table_cell, row))}</tr>" for row in shown)
    more = f"<p>… and {total - len(shown)} more</p>" if total is not None and total > len(shown) else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def value_html(value: Any) -> str:
    """Return a JSON value: a list of flat objects as a table, text as it is, anything else as JSON."""
    if value is None:
        return ""
    columns = _columns(value)
    if columns:
        rows = ([row.get(name) for name in columns] for row in value)
        return table(columns, rows, total=len(value))
    return block(value if isinstance(value, str) else _json(value, indent=2))


def image_data(part: Mapping[str, object]) -> tuple[str, str] | None:
    """Return type and Base64 of an image that may be shown; None for anything else.

    The data is decoded and encoded again, and must begin as its kind does.
    """
    kind, data = part.get("mimeType"), part.get("data")
    if part.get("type") != "image" or not isinstance(kind, str) or not isinstance(data, str):
        return None
    begins = _IMAGES.get(kind)
    if begins is None or len(data) > _MOST_IMAGE * 4 // 3 + 4:
        return None
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    return (kind, base64.b64encode(raw).decode()) if raw.startswith(begins) else None


def images_html(parts: Iterable[Mapping[str, object]]) -> list[str]:
    """Return the images among the parts of a reply that may be shown: as many as have 10 MB together."""
    left, found = _MOST_IMAGE * 4 // 3 + 4, list[str]()
    for part in parts:
        image = image_data(part)
        if image is not None and (left := left - len(image[1])) >= 0:
            found.append(image_tag(*image))
        elif image is not None:
            return [*found, text("… and more images")]
    return found


def image_tag(kind: str, data: str) -> str:
    """Return an image that `image_data` gave."""
    return f'<img src="data:{kind};base64,{data}" style="max-width:100%">'


def _table_cell(value: object) -> str:
    return f'<td style="{_CELL}">{text(_cell(value), _MOST_CELL)}</td>'


def _columns(value: object) -> list[str]:
    """Return the keys of a list of objects without lists and objects in them; none for anything else."""
    if not isinstance(value, list) or not value:
        return []
    names: dict[str, None] = {}
    for row in value[:_MOST_ROWS]:
        if not isinstance(row, Mapping) or any(isinstance(cell, Mapping | list) for cell in row.values()):
            return []
        names |= dict.fromkeys(map(str, row))
    if not all(isinstance(row, Mapping) for row in value) or len(names) > _MOST_COLUMNS:
        return []
    return [*names]


def _cell(value: object) -> str:
    if isinstance(value, bool | int | float | Mapping | list):
        return _json(value)
    return "" if value is None else str(value)


def _json(value: object, indent: int | None = None) -> str:
    from toolexec.model.json_value import to_json_lossy

    return json.dumps(value, ensure_ascii=False, indent=indent, default=to_json_lossy)
