"""What a run gets when its worker process is gone."""

from __future__ import annotations


class WorkerLostError(Exception):
    """The worker process has ended, or does not talk as it should; the message says how."""
