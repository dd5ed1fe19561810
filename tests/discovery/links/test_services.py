"""The links that are found between the tools of real-looking services are those that a person would draw."""

from __future__ import annotations

import pytest
from tests.discovery.links.labels import EXPECTED, SERVICES, judge
from tests.discovery.links.other_services import OTHERS, OTHERS_EXPECTED
from tests.discovery.links.services import index_of

from toolexec.discovery.links import Links


@pytest.mark.parametrize(
    ("service", "precision", "recall"), [("github", 0.98, 0.99), ("jira", 0.98, 0.99), ("mail", 0.99, 0.99)]
)
def test_one_service(service: str, precision: float, recall: float) -> None:
    """Of the best three producers for each argument nearly all are right, and those that must be there are."""
    score = judge(SERVICES[service], Links(index_of(*SERVICES[service])), EXPECTED)
    assert score.precision >= precision, score.mistakes
    assert score.recall >= recall, score.mistakes


def test_all_services_in_one_index() -> None:
    """Tools of other services do not get in the way."""
    tools = [tool for service in SERVICES.values() for tool in service]
    score = judge(tools, Links(index_of(*tools)), EXPECTED)
    assert score.precision >= 0.97, score.mistakes
    assert score.recall >= 0.98, score.mistakes


def test_services_that_nothing_was_tuned_for() -> None:
    """A chat, payments, the weather, files, a cluster and a shop: a little less precise, and as complete."""
    score = judge(OTHERS, Links(index_of(*OTHERS)), OTHERS_EXPECTED)
    assert score.precision >= 0.93, score.mistakes
    assert score.recall >= 0.97, score.mistakes
