"""Idempotency keys: each kind of provider passes the key of a call on where its service takes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from toolexec import Exec, Result
from toolexec.errors import ConfigurationError, InputValidationError
from toolexec.run.effects import EffectLedger
from toolexec.run.gate import Gate
from toolexec.run.layers import Ledger

from .service import Service

HEADER = {"name": "Idempotency-Key", "in": "header", "required": True, "schema": {"type": "string"}}
POST = {"method": "POST", "path": "/orders", "body": {"n": 1}}


def document(service: Service) -> dict[str, Any]:
    """Describe an operation that requires the header, and some that do not know it."""
    answer = {"responses": {"200": {"description": "done"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "shop", "version": "1"},
        "servers": [{"url": service.url}],
        "paths": {
            "/pay": {"post": {"operationId": "pay", "parameters": [HEADER], **answer}},
            "/orders": {"post": {"operationId": "order", **answer}, "get": {"operationId": "orders", **answer}},
        },
    }


async def call(ex: Exec, name: str, key: str = "", args: Mapping[str, Any] | None = None) -> Result:
    """Call a tool of the provider once."""
    return (await ex.run_tool(f"api:{name}", args, idempotency_key=key)).raise_for_error()


class TestHTTP:
    """The header that the settings name."""

    async def test_requests_that_change_something(self, service: Service) -> None:
        """A POST gets the key of its call; a GET, and a call without a key, get none."""
        tools = {"order": POST, "orders": {"path": "/orders"}}
        async with Exec() as ex:
            await ex.add_http("api", service.url, tools=tools, idempotency_header="X-Once")
            for name, key in (("order", "k-1"), ("orders", "k-2"), ("order", "")):
                await call(ex, name, key)
        assert [each.headers.get("x-once") for each in service.seen] == ["k-1", None, None]

    async def test_it_is_an_option(self, service: Service) -> None:
        """A service that has not asked for keys gets none, and a header of the endpoint's own stays."""
        own = {**POST, "headers": {"idempotency-key": "own"}}
        async with Exec() as ex:
            await ex.add_http("api", service.url, tools={"plain": POST})
            await call(ex, "plain", "k")
            await ex.remove("api")
            await ex.add_http("api", service.url, tools={"own": own}, idempotency_header="Idempotency-Key")
            await call(ex, "own", "k")
        assert [each.headers.get("idempotency-key") for each in service.seen] == [None, "own"]

    async def test_a_key_that_cannot_be_sent(self, service: Service) -> None:
        """Line breaks and the like are refused before anything is sent."""
        async with Exec() as ex:
            await ex.add_http("api", service.url, tools={"order": POST}, idempotency_header="Idempotency-Key")
            for key in ("a\r\nX-Injected: 1", "\u00fc"):
                with pytest.raises(InputValidationError, match="printable ASCII"):
                    await call(ex, "order", key)
        assert service.seen == []

    @pytest.mark.parametrize("add", ["add_http", "add_openapi"])
    def test_a_name_that_no_header_has(self, service: Service, add: str) -> None:
        """The setting is checked at the door."""
        where = service.url if add == "add_http" else document(service)
        with Exec().sync as ex, pytest.raises(ConfigurationError, match="no header can be called"):
            getattr(ex.exec, add)("api", where, idempotency_header="a b")


class TestOpenAPI:
    """The header that the document declares, or the settings name."""

    async def test_a_header_that_the_document_declares(self, service: Service) -> None:
        """The key goes there; an argument has precedence; a call without both sends an ID of its own, as it must."""
        async with Exec() as ex:
            await ex.add_openapi("api", document(service))
            schema = (await ex.get_tool_doc("api:pay", "schema")).tool
            assert schema is not None
            assert "required" not in schema.input_schema.to_json()
            await call(ex, "pay", "k-1")
            await call(ex, "pay", "k-2", {"Idempotency-Key": "mine"})
            await call(ex, "pay")
            await call(ex, "pay")
            await call(ex, "order", "k-3")
        sent = [each.headers.get("idempotency-key", "") for each in service.seen]
        assert sent[:2] == ["k-1", "mine"]
        assert len({*sent[2:4]} - {""}) == 2
        assert sent[4] == ""

    async def test_a_header_of_the_settings(self, service: Service) -> None:
        """All other operations that change something get it, too."""
        async with Exec() as ex:
            await ex.add_openapi("api", document(service), idempotency_header="X-Once")
            for name in ("order", "orders", "pay"):
                await call(ex, name, "k")
        found = [(each.headers.get("x-once"), each.headers.get("idempotency-key")) for each in service.seen]
        assert found == [("k", None), (None, None), (None, "k")]

    async def test_a_ledger_makes_keys(self, service: Service, tmp_path: Path) -> None:
        """Each effect has one of its own, which its backend gets."""
        ledger = Ledger(EffectLedger(tmp_path / "effects.db"))
        async with Exec(gate=Gate(ledger=ledger)) as ex:
            await ex.add_openapi("api", document(service))
            await call(ex, "pay")
            await call(ex, "pay")
        ledger.close()
        sent = [each.headers["idempotency-key"] for each in service.seen]
        assert len({*sent}) == 2
        assert all(each.startswith("e-") for each in sent)


async def test_commands() -> None:
    """A program gets it in the variable that its settings name, and only there."""
    show: dict[str, Any] = {"argv": ["printenv", "ONCE"], "exit_codes": {"1": "empty"}}
    tools = {"takes": {**show, "idempotency_env": "ONCE"}, "plain": show}
    async with Exec() as ex:
        await ex.add_commands("api", tools=tools)
        assert (await call(ex, "takes", "k-1")).value == "k-1"
        assert (await call(ex, "takes")).value == ""
        assert (await call(ex, "plain", "k-1")).value == ""
        with pytest.raises(ConfigurationError, match="not the name of an environment variable"):
            ex.add_commands("other", tools={"t": {**show, "idempotency_env": "A B"}})
