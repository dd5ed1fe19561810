"""`toolexec code`: run code that calls tools, in a sandbox."""

from __future__ import annotations

from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from toolexec.cli.building import prepare_sandbox, watch_build
from toolexec.cli.code_input import CodeOptions, read_program, read_settings
from toolexec.cli.code_output import Printed, call_line, show_failure, write_files
from toolexec.cli.exit_codes import FAILED, NOT_RUN, code_of_run
from toolexec.cli.finding import connect, mention, unavailable
from toolexec.cli.session import Session
from toolexec.cli.sources import find_sources
from toolexec.cli.tables import duration_text, value_text
from toolexec.cli.terminal import Screen
from toolexec.code.types import PRINTED
from toolexec.errors import CodeExecutionError, ConfigurationError, LimitExceededError, RunWaitingError, SandboxError
from toolexec.model.visible import visible_line

if TYPE_CHECKING:
    from toolexec.code.types import CodeEvent, CodeResult
    from toolexec.exec.code import CodeSettings


async def run(session: Session, options: CodeOptions) -> int:
    """Run the program, showing what it prints while it runs, and then its value.

    Raises ConfigurationError for options that make no sense, and what `Exec.execute_code` raises when nothing was run.
    """
    screen = session.screen
    program = read_program(options)
    settings = read_settings(options, program)
    _check(session, options)
    if options.durable is not None:  # before the sandbox is prepared: then it is too late
        from toolexec.cli.journal import use_journal

        use_journal(session.ex)
    await _connect(session)
    with watch_build(screen) as view:
        await prepare_sandbox(
            session.ex,
            view,
            language=program.language,
            profile=settings.get("profile", ""),
            packages=_packages(options),
        )
        if options.durable is not None:
            result = await _run_durably(session, program.text, settings, options.durable)
        elif screen.as_json:
            result = await session.ex.execute_code(program.text, **settings)
        else:
            result = await _run_live(session, program.text, settings, trace=options.trace)
    written = write_files(options.out_dir, result.files) if options.out_dir is not None else None
    if screen.as_json:
        screen.document(result.to_dict())
    else:
        _show(screen, result)
        if result.files:
            names = ", ".join(visible_line(str(name)) for name in written or result.files)
            screen.note(f"wrote {names}" if written else f"files: {names}; --out-dir DIRECTORY keeps them")
    if result.error is None or isinstance(result.error, RunWaitingError):
        return code_of_run(result.error)
    return FAILED if isinstance(result.error, CodeExecutionError | LimitExceededError) else NOT_RUN


def _check(session: Session, options: CodeOptions) -> None:
    """Say loudly what is dangerous, and refuse what cannot be meant."""
    own = session.ex.options
    profile = options.profile or ("dev" if options.unsafe else own.security_profile)
    if options.unsafe and profile != "dev":
        raise ConfigurationError(f"--unsafe is for the profile dev; with --profile {profile} it would change nothing")
    if profile == "dev" and not options.unsafe and not own.unsafe_opt_in:
        raise ConfigurationError("the profile dev runs code without a sandbox; say --unsafe if that is what you want")
    if profile == "dev":
        session.screen.note(
            "UNSAFE: there is no sandbox: this code can read, change and send whatever you can on this machine",
            style="bold red",
        )


def _packages(options: CodeOptions) -> tuple[str, ...]:
    if not options.packages:
        return ()
    from toolexec.runtime.requirements import normal_requirements

    return normal_requirements(options.packages)


async def _connect(session: Session) -> None:
    if not session.screen.as_json:
        with suppress(ConfigurationError):  # there are no tools, and none are needed
            sources = find_sources(session.config)
            if sources.implied:
                session.screen.note(f"using {sources.files[0]} (override with -c)")
    await connect(session)
    if not session.screen.as_json:
        mention(session, unavailable(session))


async def _run_durably(session: Session, code: str, settings: CodeSettings, run_id: str) -> CodeResult:
    if session.screen.as_json:
        return await session.ex.execute_code(code, durable=run_id, **settings)
    printed = Printed(session.screen)

    def receive(event: CodeEvent) -> None:
        if event.kind == "print":
            printed.event(event)

    settings["on_event"] = receive
    result = await session.ex.execute_code(code, durable=run_id, **settings)
    printed.finish(result)
    return result


async def _run_live(session: Session, code: str, settings: CodeSettings, *, trace: bool) -> CodeResult:
    screen = session.screen
    printed = Printed(screen)
    async with aclosing(session.ex.stream_code(code, **settings)) as events:
        async for event in events:
            if event.kind == "print":
                printed.event(event)
            elif event.kind == "call_end" and trace and event.call is not None:
                screen.err.print(call_line(event.call), soft_wrap=True)
            elif event.result is not None:
                printed.finish(event.result)
                return event.result
    raise SandboxError("the code ended without a result")  # pragma: no cover - a stream ends with one


def _show(screen: Screen, result: CodeResult) -> None:
    if result.error is not None:
        show_failure(screen, result.error)
    elif result.value is not None and PRINTED not in result.notes:  # it was printed already
        screen.value(value_text(result.value))
    if screen.err.is_terminal:
        facts = [result.language, result.backend.kind if result.backend is not None else ""]
        calls = len(result.tool_calls)
        facts += [f"{calls} tool call{'' if calls == 1 else 's'}" if calls else "", duration_text(result.duration)]
        screen.note(f"{'✓' if result.ok else '✗'} {' · '.join(filter(None, facts))}")
