"""What all processes behind one port count, as one answer to a scraper: each value has the number of its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from toolexec_remote.server.member import Member

_PATIENCE: Final = 2.0


async def metrics_of_all(member: Member, own: bytes) -> bytes:
    """Return what this process counts, which is *own*, and what the others do that answer; each value has
    the label `process`."""
    others = member.others
    answers = await asyncio.gather(*(_asked(member, number) for number in others))
    expositions = {member.number: own, **dict(zip(others, answers, strict=True))}
    registry = CollectorRegistry()
    registry.register(_Counted({number: text.decode() for number, text in sorted(expositions.items())}))
    return generate_latest(registry)


async def _asked(member: Member, number: int) -> bytes:
    """Return what another process counts; empty where it does not say."""
    import aiohttp

    connector = aiohttp.UnixConnector(str(member.path_of(number)))
    headers = {"Authorization": f"Bearer {member.token}"}
    timeout = aiohttp.ClientTimeout(total=_PATIENCE)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get("http://process/metrics", headers=headers) as response,
        ):
            return await response.read() if response.status == 200 else b""
    except (aiohttp.ClientError, OSError, TimeoutError):
        return b""


class _Counted:
    """Gives what several expositions for Prometheus say, as one."""

    def __init__(self, expositions: dict[int, str]) -> None:
        self._expositions = expositions

    def collect(self) -> Iterator[Metric]:
        """Implement what a registry collects from."""
        merged: dict[str, Metric] = {}
        for number, text in self._expositions.items():
            for family in text_string_to_metric_families(text):
                into = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    into.samples.append(sample._replace(labels={"process": str(number), **sample.labels}))
        yield from merged.values()
