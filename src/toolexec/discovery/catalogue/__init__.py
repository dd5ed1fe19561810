"""Catalogues that outlive the process: the tools of an index in a file."""

from toolexec.discovery.catalogue.rows import fingerprint
from toolexec.discovery.catalogue.sqlite import SQLiteCatalogue

__all__ = ["SQLiteCatalogue", "fingerprint"]
