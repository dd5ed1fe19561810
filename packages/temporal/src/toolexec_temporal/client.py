"""The connection to Temporal, with payloads as the settings want them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from temporalio.client import Client
from temporalio.converter import DataConverter, DefaultFailureConverterWithEncodedAttributes
from temporalio.service import RPCError, RPCStatusCode

from toolexec.errors import JournalError, RunError
from toolexec.journal import SecretResolver
from toolexec_temporal.codec import codec_of
from toolexec_temporal.settings import TemporalSettings


async def connect(settings: TemporalSettings) -> Client:
    """Return a client; raises JournalError when the server cannot be reached, and SecretError for a key that cannot be
    had."""
    settings = await asyncio.to_thread(_with_secrets, settings)
    converter = replace(DataConverter.default, payload_codec=codec_of(settings))
    if settings.key:
        converter = replace(converter, failure_converter_class=DefaultFailureConverterWithEncodedAttributes)
    more: dict[str, Any] = {"api_key": settings.api_key} if settings.api_key else {}
    try:
        return await Client.connect(
            settings.address, namespace=settings.namespace, data_converter=converter, tls=settings.tls, **more
        )
    except (RPCError, RuntimeError) as error:
        raise JournalError(
            f"Temporal cannot be reached at {settings.address}: {error}; start it, or set its address", retryable=True
        ) from error


def _with_secrets(settings: TemporalSettings) -> TemporalSettings:
    """Return the settings with the values of their references."""
    resolver = SecretResolver()
    return replace(
        settings,
        api_key=resolver.resolve(settings.api_key, "api_key of Temporal"),
        key=resolver.resolve(settings.key, "key of Temporal"),
        old_keys=[resolver.resolve(key, "old_keys of Temporal") for key in settings.old_keys],
    )


def translated(error: RPCError, run_id: str) -> JournalError | RunError:
    """Return what an error of the server means here."""
    if error.status == RPCStatusCode.NOT_FOUND:
        return RunError(
            f"there is no run {run_id} on Temporal", code="run_not_found", details={"run_id": run_id}, op="durable"
        )
    return JournalError(f"Temporal failed: {error.message}", retryable=True, details={"run_id": run_id})
