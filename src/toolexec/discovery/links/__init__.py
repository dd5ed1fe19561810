"""Which tools make the arguments that other tools need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolexec.lazy import lazy_names

if TYPE_CHECKING:
    from toolexec.discovery.links.links import Links, VisibleID
    from toolexec.discovery.links.observations import Observations, Observed
    from toolexec.discovery.links.openapi import OPENAPI_LINKS
    from toolexec.discovery.links.producer import LinkSource, Producer
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "toolexec.discovery.links.links": ("Links", "VisibleID"),
            "toolexec.discovery.links.observations": ("Observations", "Observed"),
            "toolexec.discovery.links.openapi": ("OPENAPI_LINKS",),
            "toolexec.discovery.links.producer": ("LinkSource", "Producer"),
        },
    )

__all__ = ["OPENAPI_LINKS", "LinkSource", "Links", "Observations", "Observed", "Producer", "VisibleID"]
