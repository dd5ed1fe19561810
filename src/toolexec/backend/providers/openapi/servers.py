"""Where the requests of an operation go: the servers of a document, with their variables filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urljoin, urlsplit

from toolexec.backend.providers.openapi.document import InvalidPartError, items_of, mapping_of, string_of
from toolexec.errors import ConfigurationError
from toolexec.errors.hints import did_you_mean
from toolexec.model.json_value import JSONDict, JSONValue
from toolexec.net.hosts import DEFAULT_PORTS, read_authority

_VARIABLE: Final = re.compile(r"\{([^{}]*)\}")


class Servers:
    """Chooses a server: the *base_url* of the settings, else the *chosen* server of the document (by number from 0, by
    URL or by description), else the first one of the operation, its path or the document.

    *variables* are values for the variables of URLs. A URL that is relative is one to *location*, the URL of the
    document. Raises ConfigurationError for a server or a variable that the document does not have.
    """

    def __init__(
        self,
        root: JSONDict,
        *,
        location: str = "",
        base_url: str = "",
        chosen: int | str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._location = location if urlsplit(location).scheme in ("http", "https") else ""
        self._variables = variables or {}
        self._known: dict[tuple[int, ...], str] = {}
        servers = items_of(root.get("servers"))
        self._fixed = base_url.rstrip("/")
        if chosen is not None and not self._fixed:
            self._fixed = self._chosen(servers, chosen)
        self._default = servers
        unknown = [name for name in self._variables if name not in _variables_of(root)]
        if unknown and not base_url:
            known = did_you_mean(unknown[0], _variables_of(root))
            raise ConfigurationError(f"no server of the document has a variable {unknown[0]!r}; {known}")

    def url_of(self, *levels: JSONValue) -> str:
        """Return the URL for an operation, without a slash at its end; *levels* are the `servers` of the operation and
        its path. Empty where the document names no host. Raises InvalidPartError for a URL that is not one of HTTP."""
        if self._fixed:
            return self._fixed
        servers = next((found for level in levels if (found := items_of(level))), self._default)
        return self._url(servers[0]) if servers else self._relative("/")

    def own_url(self) -> str:
        """Return the URL that requests go to unless an operation says otherwise; empty where there is none."""
        try:
            return self.url_of()
        except InvalidPartError:
            return ""

    def _chosen(self, servers: list[JSONValue], chosen: int | str) -> str:
        try:
            return self._url(_choose(servers, chosen))
        except InvalidPartError as error:
            raise ConfigurationError(f"server {chosen!r}: {error}") from error

    def _url(self, server: JSONValue) -> str:
        node = mapping_of(server)
        defined = mapping_of(node.get("variables"))

        def fill_in(match: re.Match[str]) -> str:
            name = match[1]
            if name in self._variables:
                return self._variables[name]
            value = mapping_of(defined.get(name)).get("default")
            if value is None:
                raise InvalidPartError(f"the variable {name!r} of its server has no value; set it in variables")
            return str(value)

        return self._relative(_VARIABLE.sub(fill_in, string_of(node.get("url"), 2000)) or "/")

    def _relative(self, url: str) -> str:
        try:
            url = urljoin(self._location or "https:", url) if self._location or url.startswith("//") else url
            scheme = urlsplit(url).scheme
        except ValueError:
            raise InvalidPartError(f"its server {url[:200]!r} is not a valid URL") from None
        if not scheme:
            return ""  # it has no host: base_url has to name one
        if scheme not in DEFAULT_PORTS:
            raise InvalidPartError(f"its server {url[:200]!r} is not one of HTTP")
        if not host_of(url) or "@" in urlsplit(url).netloc:
            raise InvalidPartError(f"its server {url[:200]!r} has no valid host")
        return url.partition("#")[0].partition("?")[0].rstrip("/")


def host_of(url: str) -> str:
    """Return the host of a URL as an `HTTPClient` allows it: with its port where it names one; empty for none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    if parts.scheme not in DEFAULT_PORTS:
        return ""
    found = read_authority(parts.netloc.rpartition("@")[2], 0)
    if found is None:
        return ""
    host = f"[{found[0]}]" if ":" in found[0] else found[0]
    return f"{host}:{found[1]}" if found[1] else host


def _choose(servers: list[JSONValue], chosen: int | str) -> JSONValue:
    if isinstance(chosen, int):
        if not 0 <= chosen < len(servers):
            raise ConfigurationError(f"the document has {len(servers)} servers; number {chosen} is not one of them")
        return servers[chosen]
    names: list[str] = []
    for server in servers:
        node = mapping_of(server)
        if chosen in (node.get("url"), node.get("description")):
            return server
        names.extend(name for name in (node.get("url"), node.get("description")) if isinstance(name, str))
    raise ConfigurationError(f"the document has no server {chosen!r}; {did_you_mean(chosen, names)}")


def _variables_of(root: JSONDict) -> list[str]:
    """Return the names of the variables of all servers of a document."""
    paths = [mapping_of(item) for item in mapping_of(root.get("paths")).values()]
    levels = [root, *paths, *(mapping_of(operation) for path in paths for operation in path.values())]
    servers = [mapping_of(server) for level in levels for server in items_of(level.get("servers"))]
    return list(dict.fromkeys(name for server in servers for name in mapping_of(server.get("variables"))))
