"""Which tools make the arguments that others need, looked up at the first use."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from toolexec.discovery.index import Index
    from toolexec.discovery.links.links import Links
    from toolexec.exec.options import Options

_MANY_TOOLS: Final = 200


class KeptLinks:
    """The links between the tools of an index, made at the first use and kept up to date from then on."""

    def __init__(self, options: Options, index: Index) -> None:
        self._layers = options.layers
        self._index = index
        self._links: Links | None = None

    @property
    def links(self) -> Links:
        """The links; what a `LinkWatch` among the layers has seen counts, too."""
        if self._links is None:
            from toolexec.discovery.links.links import Links
            from toolexec.run.layers.link_watch import LinkWatch

            watch = next((layer for layer in self._layers if isinstance(layer, LinkWatch)), None)
            if watch is not None and watch.find is None:
                watch.find = self._index.find
            self._links = Links(self._index, observations=watch.observations if watch is not None else None)
        return self._links

    async def ready(self) -> Links:
        """Return the links once all tools were looked at; where there are many, the event loop goes on meanwhile."""
        links = self.links
        if links.pending > _MANY_TOOLS:
            await asyncio.to_thread(links.build)
        return links

    def close(self) -> None:
        """Stop listening to the index."""
        if self._links is not None:
            self._links.close()
