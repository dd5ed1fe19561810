"""Which versions of a tool there are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from toolexec.errors import InvalidVersionError
from toolexec.model.version import Version


class Versions:
    """The versions of tools by namespace and name. Not safe for use by several threads at once."""

    def __init__(self) -> None:
        # Most tools have just one, which is kept as it is: a set of one takes 216 bytes.
        self._known: dict[str, dict[str, set[str] | str]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, namespace: str, name: str, version: str) -> None:
        """Record a version."""
        names = self._known.setdefault(namespace, {})
        known = names.setdefault(name, version)
        if isinstance(known, set):
            known.add(version)
        elif known != version:
            names[name] = {known, version}

    def add_all(self, tool_ids: Iterable[str]) -> None:
        """Record the versions in many different legal IDs, at least of those that have one."""
        known = self._known
        share = dict[str, str]().setdefault
        for tool_id in tool_ids:
            namespace, _, rest = tool_id.partition(":")
            name, _, version = rest.partition(":")
            if version:
                names = known.get(namespace)
                if names is None or name in names:
                    self.add(namespace, share(name, name), version)
                else:
                    names[share(name, name)] = share(version, version)

    def discard(self, namespace: str, name: str, version: str) -> None:
        """Forget a version that was added."""
        names = self._known[namespace]
        known = names[name]
        if isinstance(known, set):
            known.discard(version)
            if known:
                return
        del names[name]
        if not names:
            del self._known[namespace]

    def highest(self, namespace: str, name: str) -> str | None:
        """Return the highest version; semantic versions count more than all other strings. None when there is none."""
        known = self._known.get(namespace, {}).get(name)
        return max(known, key=_rank) if isinstance(known, set) else known


def _rank(version: str) -> tuple[bool, Any, str]:
    try:
        return (True, Version.parse(version), version)
    except InvalidVersionError:
        return (False, 0, version)
