"""Runs that outlive their process: a journal of their calls, replay, and waiting."""
