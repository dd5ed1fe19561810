"""Runs what the host sends, in whatever language the image has."""

from __future__ import annotations

import os
import sys
from typing import Any

from ..python.protocol import PROTOCOL, VERSION
from ..python.stopping import INTERRUPT
from ..python.stream import Line, end_group, fork_quietly, leave, set_stdin
from ..python.values import to_text
from .stdio import Captured

_LIMIT = 1 << 20
_PROGRAMS = {"bash": "bash", "javascript": "node", "go": "go"}


class BoxLine(Line):
    """A line that sends what was written to stdout and stderr before what is printed later, and that can carry the
    frames of a program in another process."""

    captured: Any = None
    relay: Any = None
    """While it is set, gets each frame of the host; gives the messages in it that are for this guest."""

    def post(self, kind: str, payload: Any) -> None:
        """Implement `Line.post`."""
        if self.captured is None or kind != "print":
            super().post(kind, payload)
            return
        with self.captured.lock:
            self.captured.drain()
            super().post(kind, payload)

    def post_captured(self, payload: Any) -> None:
        """Send a `print` message about what was written."""
        super().post("print", payload)

    def receive(self) -> Any:
        """Implement `Line.receive`."""
        frame = self.receive_frame()
        relay = self.relay
        return self.messages_of(frame) if relay is None or frame[:1] == b"\0" else relay(frame)

    def is_sending(self) -> bool:
        """Implement `Line.is_sending`."""
        captured = self.captured
        return super().is_sending() or (captured is not None and captured.lock._is_owned())  # noqa: SLF001

    def send_frame(self, frame: bytes) -> None:
        """Send a frame as it is."""
        data = memoryview(len(frame).to_bytes(4, "big") + frame)
        with self._lock:
            try:
                while data and not self._gone:
                    data = data[os.write(self._write_fd, data) :]
            except BrokenPipeError:  # the host has hung up: there is no receiver
                self._gone = True


def _has_entries(directory: str) -> bool:
    try:
        with os.scandir(directory) as entries:
            return next(entries, None) is not None
    except OSError:
        return False


class Server:
    """The guest of one container."""

    def __init__(self, read_fd: int, write_fd: int, settings: dict[str, Any], hold: Any = None) -> None:
        """*read_fd* and *write_fd* lead to the host; the descriptors 0 to 2 are replaced. For *hold* see `Line`."""
        self.settings = settings
        self.work: str = settings["work"]
        set_stdin(None)
        alone = settings["init"] or os.getpid() == 1  # what else there is ends with this process
        self.line: BoxLine = BoxLine(read_fd, write_fd, (lambda: os._exit(0)) if alone else end_group, hold)
        self.captured: Captured = Captured(self.line.post_captured)
        self.line.captured = self.captured
        self._paths = {language: find_program(name) for language, name in _PROGRAMS.items()}
        self._runners: dict[str, Any] = {}
        os.register_at_fork(after_in_child=self._leave)
        fork_quietly()

    def prepare(self, undropped: list[str], *, languages: bool = True) -> str:
        """Get ready for the first program; gives the hello that is to be sent next.

        Without *languages* no other program is started yet, see `prepare_language`.
        """
        able = ["python", "sessions", "files", INTERRUPT, *(language for language, path in self._paths.items() if path)]
        if _has_entries(self.work):  # a workspace that outlives its containers
            from .files import note

            note(self.work)
        if self.settings["proxy_port"]:
            from .net import start

            start(self.line, self.settings["proxy_port"])
            able.append("proxy")
        if languages or self.settings["language"] == "python":
            self.prepare_language()
        hello = {
            "protocol": PROTOCOL,
            "version": VERSION,
            "capabilities": able,
            "python": ".".join(map(str, sys.version_info[:3])),
            "undropped": undropped,
        }
        return to_text(hello)

    def prepare_language(self) -> None:
        """Have ready what runs the language of the settings, if that is here."""
        language = self.settings["language"]
        if language == "python" or self._paths.get(language):
            self._runner(language).prepare(self.settings["warm"])

    def serve(self) -> None:
        """Do what the host says until it says bye or is gone."""
        while True:
            try:
                message = self.line.inbox.get()
            except BaseException:  # noqa: S112 - of a signal handler that a program has left behind
                continue
            if message is None or message.get("type") == "bye":
                for runner in self._runners.values():
                    runner.finish()
                return
            if message.get("type") == "execute":
                self._execute(message)
            elif message.get("type") != "hello":
                from .files import handle

                handle(self.line, message, self.work)

    def _runner(self, language: str) -> Any:
        """What runs programs in *language*; imported when it is needed."""
        runner = self._runners.get(language)
        if runner is None:
            path = self._paths.get(language, "")
            if language == "python":
                from .inside import Inside as Runner
            elif not path:
                raise LookupError(f"there is nothing in the image that runs {language}")
            elif language == "bash":
                from .shell import Shell as Runner
            elif language == "go":
                from .compiled import Go as Runner
            else:
                from .node import Node as Runner
            runner = self._runners[language] = Runner(self.line, path)
        return runner

    def _execute(self, message: dict[str, Any]) -> None:
        payload = message.get("payload") or {}
        runner: Any = None
        try:
            self.captured.begin(int(payload.get("output_limit") or _LIMIT))
            os.chdir(self.work)
            runner = self._runner(payload.get("language") or "python")
            result = runner.run(message)
        except BaseException as error:  # such as a full disk
            result = error_text(error)
        self.captured.finish()
        mark = "" if self._has_files() else '"files":false,'
        if isinstance(result, bytes):
            self.line.send_frame(result.replace(b'"payload":{', b'"payload":{' + mark.encode(), 1))
        elif isinstance(result, str):
            self.line.send("result", message["id"], "{" + mark + result[1:])
        if runner is not None:
            runner.finish()
        if isinstance(result, int):  # a process has ended without a result, and so does this one
            os._exit(result if result >= 0 else 128 - result)

    def _has_files(self) -> bool:
        """Whether the host could want to take files now; when in doubt, it can."""
        try:
            if not os.listdir(self.work):  # noqa: PTH208 - pathlib takes long to import
                return False
            from .files import changed

            return changed(self.work)
        except BaseException:
            return True

    def _leave(self) -> None:
        leave(self.line)
        self.captured.sever()
        self.line.captured = None


def find_program(name: str) -> str:
    """Return the path of a program on the PATH, "" if there is none."""
    for directory in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = directory + "/" + name
        if directory.startswith("/") and os.access(path, os.X_OK):
            return path
    return ""


def error_text(error: Any) -> str:
    """Return the payload of a `result` message, for what went wrong around a program."""
    kind = type(error).__name__
    try:
        said = str(error)[:2000].encode("utf-8", "replace").decode()
    except BaseException:
        said = ""
    return to_text({"error": {"kind": kind, "message": f"{kind}: {said}" if said else kind}})
