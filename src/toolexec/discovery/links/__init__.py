"""Which tools make the arguments that other tools need."""

from toolexec.discovery.links.links import Links, VisibleID
from toolexec.discovery.links.observations import Observations, Observed
from toolexec.discovery.links.openapi import OPENAPI_LINKS
from toolexec.discovery.links.producer import LinkSource, Producer

__all__ = ["OPENAPI_LINKS", "LinkSource", "Links", "Observations", "Observed", "Producer", "VisibleID"]
