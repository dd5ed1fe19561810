"""What the tests of catalogues share."""

from tests.discovery.catalogue.tools import path

__all__ = ["path"]
