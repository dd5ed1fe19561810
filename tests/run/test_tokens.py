"""Estimates of tokens, beside what a vocabulary counts."""

from __future__ import annotations

import sys

import pytest
from benchmarks.context.catalogue import tasks
from benchmarks.context.world import definitions, fresh

from toolexec.adapter.mcp import listed_schema
from toolexec.code.compact import call_line
from toolexec.errors import ConfigurationError
from toolexec.model.visible import visible_json
from toolexec.run.tokens import PROSE, VALUES, counted_with, estimated, exact

LANGUAGES = {
    "German": "Die Überweisung wurde ausgeführt, und die Bestätigung geht Ihnen in Kürze per E-Mail zu. " * 5,
    "Russian": "Платёж выполнен, подтверждение будет отправлено вам по электронной почте. " * 5,
    "Chinese": "付款已完成，确认信将很快通过电子邮件发送给您。请检查您的收件箱。" * 5,
    "Japanese": "お支払いが完了しました。確認メールをまもなくお送りします。" * 5,
}


def off_by(text: str, characters: float = PROSE) -> float:
    return estimated(text, characters) / exact(text) - 1


def test_estimates_of_what_a_server_shows_are_close() -> None:
    """Definitions, signatures, tasks and results are within 10 % of what o200k counts, each kind as a whole."""
    tools = definitions().values()
    shown = {
        "definitions": "\n".join(visible_json(listed_schema(tool.input_schema.to_json())) for tool in tools),
        "signatures": "\n".join(call_line(tool) for tool in tools),
        "tasks": "\n".join(task.text for task in tasks()),
    }
    errors = {kind: off_by(text) for kind, text in shown.items()}
    functions = fresh()
    values = [functions[call.tool_id](**call.args) for task in tasks()[::4] for call in task.calls[:1]]
    errors["results"] = off_by("\n".join(map(visible_json, values)), VALUES)
    assert all(abs(error) < 0.1 for error in errors.values()), errors


@pytest.mark.parametrize("language", LANGUAGES)
def test_other_languages_are_estimated_by_their_bytes(language: str) -> None:
    """Characters that take more bytes take more tokens: the estimate is within 30 %."""
    assert abs(off_by(LANGUAGES[language])) < 0.3, off_by(LANGUAGES[language])


def test_short_and_empty_strings() -> None:
    """An empty text has no tokens, any other one at least one."""
    assert estimated("") == 0
    assert estimated("a") == 1
    assert estimated("é") == 1
    assert exact("") == 0


def test_each_way_to_count() -> None:
    """By characters, also where nothing is counted, or with a vocabulary."""
    assert counted_with("estimate") is counted_with("off") is estimated
    assert counted_with("exact") is exact


def test_exact_counting_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the vocabulary it is refused at the start, with what to install."""
    from toolexec.run import tokens

    monkeypatch.setitem(sys.modules, "rs_bpe.bpe", None)
    tokens.vocabulary.cache_clear()
    try:
        with pytest.raises(ConfigurationError, match="pip install rs-bpe"):
            counted_with("exact")
    finally:
        tokens.vocabulary.cache_clear()
