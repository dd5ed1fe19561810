"""The first steps of a guest: what it gives up, its first process, its descriptors and its environment."""

from __future__ import annotations

import _signal  # pyright: ignore[reportMissingImports] - signal takes longer to import
import os
import sys
from _thread import allocate_lock
from typing import Any

from ..python.values import from_text
from .processes import move_high

_FAILED = 70
_REMOVED = (
    "LD_PRELOAD",
    "LD_AUDIT",
    "NODE_OPTIONS",
    "NODE_V8_COVERAGE",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PROMPT_COMMAND",
    "GOFLAGS",
    "PERL5OPT",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
)
_REMOVED_STARTS = ("PYTHON", "LD_DEBUG", "BASH_FUNC_")
_ENDING = (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP, _signal.SIGQUIT)


def boot(text: str, wait: Any = None) -> None:
    """Be the guest that the settings in *text* ask for; see `GuestSettings`. Does not return before its end.

    *wait*, if given, is called when everything is ready but for the host: with the two descriptors that lead to it,
    which may be replaced until it returns.

    A guest that cannot begin says why on the stderr that it was given and exits with 70; after that, nothing is
    written there.
    """
    words = 2
    try:
        settings = from_text(text)
        os.umask(0o077)
        _limit(settings["open_files"], settings["processes"])
        undropped: list[str] = []
        if settings["drop"]:
            from .drop import drop

            undropped = drop(settings["drop"], settings["work"], settings["proxy_port"])
        if settings["init"]:
            _stay_as_init()
        elif os.getpid() == 1:  # the system ignores for it what it does not handle
            _signal.signal(_signal.SIGTERM, lambda *_: os._exit(128 + _signal.SIGTERM))
        read_fd, write_fd, words = map(move_high, (0, 1, 2))
        for descriptor in (read_fd, write_fd):
            os.set_blocking(descriptor, True)
        _clean_environment(settings["work"])
        os.chdir(settings["work"])

        from .serve import Server

        hold: Any = None
        if wait is not None:
            hold = allocate_lock()
            hold.acquire()
        server = Server(read_fd, write_fd, settings, hold)
        hello = server.prepare(undropped, languages=wait is None)
        if wait is not None:
            wait(read_fd, write_fd)
            hold.release()
        server.line.send("hello", "0", hello)
        if wait is not None and server.settings["language"] != "python":
            server.prepare_language()  # started only now: its random numbers would be those of every restore
    except BaseException as error:
        os.write(words, _last_words(error))
        os._exit(_FAILED)
    os.close(words)
    server.serve()


def _limit(open_files: int, processes: int) -> None:
    """No core files, and no more open files, and processes of this user, than there may be."""
    import resource

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY:
        open_files = min(open_files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if processes:
        resource.setrlimit(resource.RLIMIT_NPROC, (processes, processes))


def _stay_as_init() -> None:
    """Go on in a child, which leads a group of its own.

    This process only waits: for orphaned processes, and for that child, after which it ends in the same way. If it is
    the first process of a container, everything else ends with it.
    """
    child = os.fork()
    if child == 0:
        os.setsid()
        return

    def end(code: int) -> None:
        if os.getpid() != 1:
            try:
                os.killpg(child, _signal.SIGKILL)
            except ProcessLookupError:
                pass
        os._exit(code)

    try:
        for number in _ENDING:
            _signal.signal(number, lambda number, _: end(128 + number))
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1):  # stderr stays open: the node of a Kubernetes cluster hangs up when it is closed
            os.dup2(null, descriptor)
        while True:
            ended, status = os.wait()
            if ended == child:
                end(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
    finally:
        end(_FAILED)


def _clean_environment(work: str) -> None:
    """Leave what the image has set, but for what would change how programs are started."""
    for name in list(os.environ):
        if name in _REMOVED or name.startswith(_REMOVED_STARTS):
            del os.environ[name]
    os.environ["HOME"] = work
    os.environ["TMPDIR"] = "/tmp"  # noqa: S108 - a tmpfs of this guest alone


def _last_words(error: Any) -> bytes:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" ({place.tb_frame.f_code.co_name}, line {place.tb_lineno})" if place is not None else ""
    version = ".".join(map(str, sys.version_info[:3]))
    said = f"the guest cannot begin with Python {version}: {type(error).__name__}: {error}{where}\n"
    return said.encode("utf-8", "replace")
