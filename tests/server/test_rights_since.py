"""`toolexec serve` as a process: calls under way whose caller has lost its rights since they began."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from mcp_types import InputRequiredResult
from tests.server.office import Office, key
from tests.server.test_restart import YES
from tests.server.test_restart import caller as client
from tests.server.test_tasks_restart import caller
from tests.waiting import until

pytestmark = pytest.mark.full
BY_STAFF = """
[policy]
default = "deny"
[[policy.rules]]
effect = "ask"
tools = "office:sign"
roles = "staff"
"""
TASKS = '[tasks]\nmode = "always"\n'
LASTS = 12  # seconds: a busy machine has begun a call by then
PROGRAM = "tools.office.wait()\nreturn tools.office.sign()"


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """A office without settings."""
    return Office(tmp_path)


@pytest.mark.parametrize("way", ["removed", "expired", "token"])
async def test_no_further_attempt(office: Office, way: str) -> None:
    """A call between two attempts makes no further one once the key of its caller is taken out or has expired, or its
    token has; that attempt is on record as refused."""
    office.set(TASKS, key("bob"), key("ann"), office.tokens)
    with office.serve() as url:
        credential = "ann's" if way != "token" else office.issuer.token(sub="eve", exp=int(time.time()) + LASTS)
        async with caller(url, "auto", credential) as ann:
            await ann.call("run_tool", {"tool_id": "office:try"})
        await until(lambda: "tried" in office.done)
        if way != "token":
            office.set(TASKS, key("bob"), office.tokens, key("ann", expires="2020-01-31") if way == "expired" else "")
        await office.is_refused(url, credential)
        office.go()
        await until(lambda: [record for record in office.records("office:try") if record[0] == "call"])
    assert "succeeded" not in office.done
    assert office.records("office:try")[-2:] == [("attempt", "policy_denied"), ("call", "policy_denied")]


async def test_an_approval_for_a_token_without_the_role(office: Office) -> None:
    """A call that waits for a person is not made once its caller has come with a newer token, of the same client and
    with the same scopes, that lacks the role; with the same role it is made."""
    office.set(office.tokens, BY_STAFF)
    now = int(time.time())
    args = {"tool_id": "office:sign"}
    with office.serve() as url:
        for at, roles in ((-10, ["staff"]), (-8, [])):
            tokens = [office.issuer.token(roles=each, iat=now + at) for at, each in enumerate((["staff"], roles), at)]
            async with client(url, tokens[0]) as ann:
                asked = await ann.session.call_tool("run_tool", args, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            async with client(url, tokens[1]) as ann:
                more: Any = {"input_responses": YES, "request_state": asked.request_state}
                result = await ann.session.call_tool("run_tool", args, allow_input_required=True, **more)
            assert getattr(result, "is_error", None) is (not roles)
    assert office.done == ["signed"]
    assert office.records("office:sign")[-1] == ("call", "policy_denied")


@pytest.mark.parametrize("renewed", [False, True])
async def test_a_task_of_a_token_that_has_expired(office: Office, renewed: bool) -> None:
    """A task makes no further call once the token of its caller has expired, unless the caller has come with another
    one, as one does that asks how far the task is."""
    office.set(office.tokens, TASKS)
    with office.serve() as url:
        token, later = office.issuer.token(exp=int(time.time()) + LASTS), office.issuer.token()
        async with caller(url, "auto", token) as ann:
            task_id = (await ann.call("execute_code", {"language": "python", "code": PROGRAM}))["taskId"]
        await until(lambda: "waited" in office.done)
        if renewed:
            async with caller(url, "auto", later) as ann:
                assert (await ann.get(task_id))["status"] == "working"
        await office.is_refused(url, token)
        office.go()
        await until(lambda: office.records("office:sign"))
    assert office.records("office:sign") == [("call", "ok" if renewed else "policy_denied")]
    assert ("signed" in office.done) is renewed
