"""A stand-in for firecracker and its jailer: the API is checked as the real one does, and behind it QEMU runs the guest.

`python -m packages.microvms.tests.engines.firecracker_server jailer|firecracker ARGUMENT...` behaves as that program. It is for machines
whose KVM does not run Linux: all is real but the virtual machine monitor's own code.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import re
import shutil
import sys
import traceback
import zlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from packages.microvms.tests.engines.firecracker_api import API, VERSION, BadRequestError

from toolexec.machines import Stream, VmFiles
from toolexec_microvms.machine import Shape
from toolexec_microvms.qemu.vmm import PROCESSOR, RAM, STATE, QemuMachine, QemuVmm

_PORTS = {"1024": "control", "1025": "stdio"}
_LOAD = "Load snapshot error: Failed to restore from snapshot: Failed to get snapshot state from file:"


class _PlainQemu(QemuVmm):
    """QEMU that stays in the control group of the jail."""

    def _look(self) -> None:
        self._looked = True


class QemuGuest:
    """Runs the guest of a Firecracker whose root directory is *root*; see `Engine`."""

    def __init__(self, root: Path) -> None:
        self.machine: QemuMachine | None = None
        self.ended = asyncio.Event()
        self._root = root
        self._qemu = _PlainQemu(accelerator="tcg")
        self._config: Mapping[str, Any] = {}
        self._server: asyncio.Server | None = None
        self._taken: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def _path(self, name: str) -> Path:
        return self._root / name.lstrip("/")

    async def boot(self, config: Mapping[str, Any]) -> None:
        """Boot a template: nothing says which machine will be saved."""
        self._config = {name: dict(value) for name, value in config.items()}
        await self._qemu.check()
        machine = await self._qemu.boot(self._files(), self._shape(), template=self._root)
        await self._began(machine)

    async def pause(self) -> None:
        assert self.machine is not None
        await self.machine.monitor.execute("stop")

    async def resume(self) -> None:
        assert self.machine is not None
        await self.machine.monitor.execute("cont")

    async def save(self, state: Path, memory: Path) -> None:
        """QEMU's state, with the configuration, and a checksum as Firecracker's files have one."""
        assert self.machine is not None
        directory = self._root / "saving"
        directory.mkdir()
        try:
            await self._qemu.save(self.machine, directory)
            head = json.dumps([dict(self._config), (directory / PROCESSOR).read_text()])
            content = head.encode() + b"\n" + (directory / STATE).read_bytes()
            state.write_bytes(content + zlib.crc32(content).to_bytes(4, "big"))
            (directory / RAM).rename(memory)
        finally:
            shutil.rmtree(directory)

    async def load(self, state: Path, memory: Path, *, resume: bool) -> None:
        content, checksum = state.read_bytes()[:-4], state.read_bytes()[-4:]
        if zlib.crc32(content).to_bytes(4, "big") != checksum:
            raise BadRequestError(f"{_LOAD} Failed to load snapshot state from file: CRC64 validation failed: 1")
        head, _, body = content.partition(b"\n")
        self._config, processor = json.loads(head)
        if not resume:
            raise BadRequestError("this stand-in only restores machines that go on")
        directory = self._root / "restoring"
        directory.mkdir()
        (directory / STATE).write_bytes(body)
        (directory / PROCESSOR).write_text(processor)
        (directory / RAM).hardlink_to(memory)
        await self._qemu.check()
        machine = await self._qemu.restore(self._files(), self._shape(), directory)
        shutil.rmtree(directory)
        await self._began(machine)
        await self.resume()  # it was paused when it was saved

    def _files(self) -> VmFiles:
        source = self._config["/boot-source"]
        kernel, initrd = self._path(source["kernel_image_path"]), self._path(source["initrd_path"])
        rootfs = self._path(self._config["drives"]["rootfs"]["path_on_host"])
        image = Path(os.environ["TOOLEXEC_TEST_VM"])  # QEMU boots another form of the kernel, and reads all to restore
        if not initrd.exists():
            initrd = image / "initrd.img"
        return VmFiles(kernel=image / "vmlinuz", vmlinux=kernel, initrd=initrd, rootfs=rootfs, digest="")

    def _shape(self) -> Shape:
        size = self._config["/machine-config"]
        return Shape(memory_mib=size["mem_size_mib"], cpus=size["vcpu_count"])

    async def _began(self, machine: QemuMachine) -> None:
        self.machine = machine
        uds = self._config["/vsock"]["uds_path"].lstrip("/")  # relative: the whole path may be too long
        self._server = await asyncio.start_unix_server(self._connect, uds)
        self._keep(self._wait(machine))

    async def _wait(self, machine: QemuMachine) -> None:
        await machine.wait()
        print(machine.said(), flush=True)
        self.ended.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.machine is not None
        line = (await reader.readline()).decode("ascii", "replace")
        found = re.fullmatch(r"CONNECT (\d+)\n", line)
        name = _PORTS.get(found.group(1), "") if found else ""
        if not name or name in self._taken:  # nothing listens there: the connection is reset
            writer.close()
            return
        self._taken.add(name)
        stream: Stream = getattr(self.machine, name)
        writer.write(b"OK 1073741824\n")
        self._keep(self._down(stream, writer))
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                await stream.write(data)

    async def _down(self, stream: Stream, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
        writer.close()

    def _keep(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def serve(root: Path, words: list[str], *, uid: int = -1) -> int:
    """Be a Firecracker that sees *root* as its root directory; gives its exit code."""
    options = _strict(
        "firecracker", words, {"--id": "anonymous-instance", "--api-sock": "/run/firecracker.socket"}, LOGS
    )
    guest = QemuGuest(root)
    api = API(root, options["--id"], guest)
    done = asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while not done.is_set():
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split("\r\n")[0].split(" ", 2)
                length = re.search(r"(?im)^content-length: *(\d+)", head)
                body = await reader.readexactly(int(length.group(1))) if length else b""
                try:
                    status, content = await api.answer(method, path, body)
                except Exception as error:
                    status, content = 500, {"fault_message": "".join(traceback.format_exception(error))[-700:]}
                text = json.dumps(content).encode() if content is not None else b""
                kind = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(text) if text else b""
                writer.write(b"HTTP/1.1 %d \r\nServer: Firecracker API\r\nConnection: keep-alive\r\n" % status)
                writer.write(kind + b"\r\n" + text)
                await writer.drain()
                if api.failed:
                    done.set()
        writer.close()

    os.chdir(root)
    path = options["--api-sock"].lstrip("/")
    server = await asyncio.start_unix_server(connected, path)
    if uid >= 0:
        os.chown(path, uid, uid)
    waiting = [asyncio.ensure_future(done.wait()), asyncio.ensure_future(guest.ended.wait())]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    server.close()
    if guest.machine is not None:
        await guest.machine.aclose()
    return 1 if api.failed else 0


LOGS = {
    "--log-path": "",
    "--level": "Info",
    "--start-time-us": "",
    "--start-time-cpu-us": "",
    "--parent-cpu-time-us": "",
}


def jail(words: list[str]) -> int:
    """Be the jailer: the directory of the jail is made as it does, but the root directory stays."""
    mine, _, theirs = (
        (words, "", []) if "--" not in words else (words[: words.index("--")], "", words[words.index("--") + 1 :])
    )
    options = _strict("jailer", mine, {"--chroot-base-dir": "/srv/jailer", "--cgroup-version": "1"}, {})
    for name in ("--id", "--exec-file", "--uid", "--gid"):
        if not options.get(name):
            _stop(f'Jailer error: Failed to parse arguments: MissingArgument("{name[2:]}")')
    if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", options["--id"]):
        _stop(f"Jailer error: Invalid instance ID: {options['--id']}")
    program = Path(options["--exec-file"])
    if not program.is_file() or "firecracker" not in program.name:
        _stop(f"Jailer error: Failed to canonicalize path {program}")
    uid = int(options["--uid"])
    root = Path(options["--chroot-base-dir"], program.name, options["--id"], "root")
    if not Path(options["--chroot-base-dir"]).is_dir():
        _stop(f"Jailer error: Failed to canonicalize path {options['--chroot-base-dir']}")
    (root / "run").mkdir(parents=True, exist_ok=True)
    for directory in (root, root / "run"):
        os.chown(directory, uid, uid)
    if ctypes.CDLL(None).mount(b"proc", b"/proc", b"proc", 0, None):  # that of the new namespace of processes
        _stop("Jailer error: cannot mount /proc")
    return asyncio.run(serve(root, ["--id", options["--id"], *theirs], uid=uid))


def _strict(program: str, words: list[str], known: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the options, each with a value; an unknown one, or one twice, ends the program as the real one does."""
    parser = argparse.ArgumentParser(prog=program, add_help=False, allow_abbrev=False)
    names = {*known, *more, *(_JAILER if program == "jailer" else ())}
    for name in sorted(names):
        parser.add_argument(name, action="append", default=[])
    for name in ("--show-level", "--new-pid-ns", "--daemonize"):
        parser.add_argument(name, action="store_true")
    found = vars(parser.parse_args(words))
    options = {**known, **more}
    for name in names:
        values = found[name[2:].replace("-", "_")]
        if len(values) > 1 and name not in ("--cgroup", "--resource-limit"):
            _stop(f'Error: ArgumentParsing(DuplicateArgument("{name[2:]}"))')
        if values:
            options[name] = values[-1]
    return options


_JAILER = ("--id", "--exec-file", "--uid", "--gid", "--netns", "--cgroup", "--parent-cgroup", "--resource-limit")


def _stop(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    sys.exit(1)


def main() -> int:
    """Be the program that the first argument names."""
    program, *words = sys.argv[1:]
    if words[:1] == ["--version"]:
        print(f"{program.capitalize()} v{VERSION}\n")
        return 0
    if program == "jailer":
        return jail(words)
    return asyncio.run(serve(Path.cwd(), words))


if __name__ == "__main__":
    sys.exit(main())
