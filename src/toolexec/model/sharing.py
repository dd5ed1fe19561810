"""Equal values made one and the same object, so that a catalogue of many tools keeps each only once."""

from __future__ import annotations

from typing import Final

from toolexec.model.tags import MAX_TAG_LENGTH

_MOST: Final = 1 << 15
_MAX_TEXT: Final = MAX_TAG_LENGTH
_MAX_TAGS: Final = 8

_strings: dict[str, str] = {}
_tags: dict[tuple[str, ...], tuple[str, ...]] = {}


def shared_text(text: str) -> str:
    """Return the first text that was equal to this one, if it is remembered; long ones are given back as they are."""
    if type(text) is not str or len(text) > _MAX_TEXT:  # a subclass of str would show up in tools that never had it
        return text
    if len(_strings) >= _MOST:
        _strings.clear()
    return _strings.setdefault(text, text)


def shared_tags(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Return the same for a tuple of tags, each of which is shared, too."""
    if len(tags) > _MAX_TAGS:
        return tuple(map(shared_text, tags))
    known = _tags.get(tags)
    if known is None:
        if len(_tags) >= _MOST:
            _tags.clear()
        known = tuple(map(shared_text, tags))
        _tags[known] = known
    return known


def shared_parts(tool_id: str) -> tuple[str, str, str]:
    """Return the name, namespace and version of a legal ID, each of them shared."""
    namespace, _, rest = tool_id.partition(":")
    if not rest:
        return tool_id, "", ""
    name, _, version = rest.partition(":")
    if len(_strings) >= _MOST:
        _strings.clear()
    share = _strings.setdefault
    return share(name, name), share(namespace, namespace), share(version, version)
