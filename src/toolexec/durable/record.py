"""Which runs are recorded beside the durable ones, and how long they are kept."""

from __future__ import annotations

from dataclasses import dataclass

from toolexec.model.declared import Bytes, Seconds, setting
from toolexec.model.settings import checked


@checked("Record")
@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Which runs of chains, workflows and code are written into the journal once they have ended, without secrets.

    >>> Record(share=0.01, keep=200).share
    0.01

    `share` of them is, by chance. A run whose calls come to more than `max_bytes`, as JSON, is not. The last `keep`
    recordings are kept, for at most `keep_seconds` (0: any time). Raises ConfigurationError for a value that makes no
    sense.
    """

    share: float = setting(1.0, "Share of runs to record: 0 none, 0.01 one of a hundred, 1 all.", least=0, most=1)
    max_bytes: Bytes = setting(
        1024**2, "Largest recording; runs whose calls exceed it, as JSON, are not recorded.", above=0, file_least=1000
    )
    keep: int = setting(1000, "Most recorded runs to keep.", least=1)
    keep_seconds: Seconds = setting(30 * 86_400.0, "How long a recorded run is kept; 0: forever.", least=0)
