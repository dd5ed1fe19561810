"""The stored catalogue that the settings name: the tools that servers had, before any of them is connected."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from toolexec.config.load import Loaded
from toolexec.errors import CatalogueError, ConfigurationError

if TYPE_CHECKING:
    from toolexec.discovery.catalogue import SQLiteCatalogue
    from toolexec.discovery.stored import StoredIndex

__all__ = ["kept_tools"]

logger = logging.getLogger(__name__)


def kept_tools(loaded: Loaded, place: str) -> tuple[SQLiteCatalogue, StoredIndex] | None:
    """The catalogue and its index, kept in step with each other from now on; None where the settings name no file.

    Tools of servers that are not configured any more, or switched off, go out of it. One that is damaged is begun anew.
    Raises ConfigurationError when there is an Exec already, in *place*; CatalogueError for a file that cannot be used.
    """
    path = loaded.settings.catalogue.path
    if not path:
        return None
    if place:
        raise ConfigurationError(
            f"{place} has an Exec with an index of its own, and the settings [catalogue] name one, too; take the path "
            "away, and give that Exec index=SQLiteCatalogue(path).open()"
        )
    from toolexec.discovery.catalogue import SQLiteCatalogue

    catalogue = SQLiteCatalogue(Path(path).expanduser())
    servers = {server.name for server in loaded.servers if server.enabled}
    try:
        try:
            index = catalogue.open(backends=servers, local=False)
        except CatalogueError as error:
            if not error.details.get("damaged"):
                raise
            logger.warning("%s: it is begun anew", error)
            catalogue.clear()
            index = catalogue.open(backends=servers, local=False)
        catalogue.attach(index, local=False)
    except BaseException:
        catalogue.close()
        raise
    return catalogue, index
