"""A client and a fleet of servers with their real classes, on a network, clocks and disks that a seed decides about."""

from __future__ import annotations

import asyncio
import io
import random
import sqlite3
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from secrets import token_hex
from typing import Any, Literal
from unittest.mock import patch

import aiohttp
from aiohttp import web
from packages.remote.tests.servers import KEY
from packages.remote.tests.simulated_http import HttpLine, Listen, SimulatedPost, Wires
from packages.remote.tests.virtual import Faults, Line, VirtualLoop

from toolexec.errors import Outcome, SandboxError, SandboxUnavailableError, ToolExecError
from toolexec.remote import RemoteSettings, RuntimeServerSettings, encode_message
from toolexec.runtime import Runtime
from toolexec.sandbox import CodeResult, ExecuteRequest, Message
from toolexec.testing.scripted_sandbox import ScriptedSandbox
from toolexec_remote import backend as backend_module
from toolexec_remote import connection as connection_module
from toolexec_remote import endpoints as endpoints_module
from toolexec_remote import post as post_module
from toolexec_remote.backend import RemoteBackend
from toolexec_remote.discovery import Discovery
from toolexec_remote.endpoints import Endpoints
from toolexec_remote.server import capacity as capacity_module
from toolexec_remote.server import journal as journal_module
from toolexec_remote.server import relay as relay_module
from toolexec_remote.server import runs as runs_module
from toolexec_remote.server import sessions as sessions_module
from toolexec_remote.server import shares as shares_module
from toolexec_remote.server.app import RuntimeApp
from toolexec_remote.server.capacity import Capacity
from toolexec_remote.server.duplex import DuplexHub
from toolexec_remote.server.gateway import Gateways
from toolexec_remote.server.metrics import RemoteMetrics
from toolexec_remote.server.posted_run import PostWatcher
from toolexec_remote.server.relay import Route
from toolexec_remote.server.remote_run import RemoteRun
from toolexec_remote.server.runs import RunService
from toolexec_remote.signature import KeyRing, ReplayCache
from toolexec_remote.start import NeverStartedError

TIMEOUT = 12.0
ENDPOINTS = ("http://127.0.0.1:1/v1/execute", "http://127.0.0.1:2/v1/execute")
NAME = "dns+http://fleet.test:1/v1/execute"
ADDRESSES = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
_METRICS = RemoteMetrics()


def at(address: str) -> str:
    """Return the endpoint at an address of the name."""
    return f"http://{address}:1/v1/execute"


class Disk:
    """The state directory of a server: what was committed when it was killed, and older copies of that."""

    def __init__(self) -> None:
        self.images: list[bytes] = []
        self._rows: sqlite3.Connection | None = None

    def mkdir(self, **_: Any) -> None:
        """Be there."""

    def __truediv__(self, _: str) -> Disk:
        return self

    def iterdir(self) -> list[Disk]:
        """Have no files: the responses are small."""
        return []

    def open(self) -> sqlite3.Connection:
        """Open what is there, as a database."""
        self._rows = sqlite3.connect(":memory:", isolation_level=None)
        if self.images:
            self._rows.deserialize(self.images[-1])
        return self._rows

    def keep(self) -> None:
        """Keep a copy of what is there now."""
        if self._rows is not None:
            with suppress(sqlite3.Error):
                self.images.append(self._rows.serialize())

    def roll_back(self, dice: random.Random) -> None:
        """Go back to an older copy, or to nothing."""
        self.images = self.images[: dice.randrange(len(self.images) + 1)]


@contextmanager
def simulated_time() -> Generator[VirtualLoop]:
    """Have the classes of client and server read the clock of a loop, which is given, and disks that are `Disk`s."""
    loop = VirtualLoop()
    clocks = (
        post_module,
        connection_module,
        endpoints_module,
        backend_module,
        runs_module,
        sessions_module,
        capacity_module,
        relay_module,
        shares_module,
    )
    with (
        patch.object(journal_module, "open_database", lambda disk: disk.open()),
        patch.object(journal_module, "use_wal", lambda *_, **__: None),
        patch.object(journal_module, "_locked", lambda _: io.BytesIO()),
    ):
        for module in clocks:
            patch.object(module, "monotonic", loop.time).start()
        try:
            yield loop
        finally:
            patch.stopall()
            loop.close()


class _Service(RunService):
    """Writes the ID of its run into each request, so that the sandbox can say which one began."""

    def _build_request(self, run: RemoteRun, route: Route) -> ExecuteRequest:
        return replace(super()._build_request(run, route), metadata={"run": run.id})


class Server:
    """One server process."""

    def __init__(self, world: World, disk: Disk, max_running: int = 0) -> None:
        self.disk = disk
        self._world = world
        self._dead = False
        self._http: web.AppRunner | None = None
        self._sent: list[Gateways] = []
        dice = world.dice
        settings = RuntimeServerSettings(
            keys=[KEY],
            max_running=max_running or dice.choice([1, 2, 8]),
            reconnect=3.0,
            go_timeout=2.0,
            keeps=120.0,
            drain_grace=1.0,
        )
        self.runtime = Runtime([ScriptedSandbox(default=self._program)])
        where: Any = disk
        self.service = _Service(self.runtime, settings, _METRICS, where)
        self.hub = DuplexHub(self.service, KeyRing(settings.keys), ReplayCache(), Capacity(self.service))
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lines: list[Line | HttpLine] = []

    async def _program(self, request: ExecuteRequest) -> Any:
        """Run a program: it begins, may print, calls tools, and takes some time."""
        world, dice, name = self._world, self._world.dice, request.code
        if dice.random() < 0.1:
            raise SandboxUnavailableError("no sandbox now", retryable=True)
        world.begun[name] += 1
        world.runs_begun.add(request.metadata["run"])
        await asyncio.sleep(dice.choice([0.0, 0.05, 1.0]))
        if dice.random() < 0.5:
            request.output.write("x\n")
        assert request.gateway is not None
        for number in range(dice.randrange(3)):
            await request.gateway.run_tool("shop:count", {"item": f"{name}.{number}"})
            await asyncio.sleep(dice.choice([0.0, 0.3]))
        return f"value of {name}"

    def accept(self, line: Line, client: str) -> None:
        """Serve a connection."""
        self._lines.append(line)
        socket: Any = line.server
        task = asyncio.get_running_loop().create_task(self.hub.serve(socket, KEY, client, "/v1/execute/connect"))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def listen(self) -> None:
        """Serve HTTP, too."""
        gateways = Gateways((), allow_private=True)
        gateways._session = aiohttp.ClientSession(connector=self._world.wires())
        self._sent.append(gateways)
        capacity = Capacity(self.service)
        app = RuntimeApp(self.service, self.hub.ring, self.hub.replays, capacity, gateways)
        self._http = web.AppRunner(app.made(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._http.setup()

    def answer(self, line: HttpLine) -> Any:
        """Return the protocol of a connection of HTTP; raises OSError where there is none."""
        if self._http is None or self._http.server is None or self._dead:
            raise ConnectionRefusedError("nothing listens")
        self._lines.append(line)
        return self._http.server()

    async def drain(self) -> None:
        """End it in good order."""
        await self.service.drain()
        await self.hub.aclose()
        await self.kill()

    def cut(self) -> None:
        """Cut its connections."""
        for line in self._lines:
            line.cut()
        self._lines.clear()

    async def kill(self) -> None:
        """End it without a word: what is on the disk by now is all that is left."""
        if self._dead:
            return
        self._dead = True
        self.disk.keep()
        self.service.journal.close()
        for line in self._lines:
            if isinstance(line, HttpLine):
                line.go_silent()
                line.server.end(ConnectionResetError("killed"))
                continue
            line.is_silent = True
            line.server.end()
            line.go_silent()
        tasks = [*self._tasks, *(run.task for run in self.service.active() if run.task is not None)]
        for task in tasks:
            task.cancel()
        await self.hub._runs.aclose()
        if tasks:
            await asyncio.wait(tasks)
        for run in self.service._runs.values():
            if isinstance(run.watcher, PostWatcher) and run.watcher._away is not None:
                run.watcher._away.cancel()
        for gateways in self._sent:
            await gateways.aclose()
        if self._http is not None:
            await self._http.cleanup()
        await self.runtime.aclose()


class Fleet(Endpoints):
    """The connections of a client to the servers of a world."""

    def __init__(self, world: World, settings: RemoteSettings) -> None:
        super().__init__(settings, Discovery(settings, world.look_up))
        self._world = world
        self._key = KEY

    async def _dial(self, endpoint: str) -> Any:
        world = self._world
        await asyncio.sleep(world.faults.delay * world.dice.random())
        server = world.servers.get(endpoint)
        if server is None:
            raise ConnectionRefusedError("nothing listens")
        line = Line(world.faults)
        world.lines.append(line)
        server.accept(line, self._client)
        return line.client


class Gateway:
    """The tools of one program: each call is counted."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def relay(self, message: Message) -> str:
        args = message.payload["args"]
        assert isinstance(args, dict)
        self._world.calls[str(args["item"])] += 1
        await asyncio.sleep(self._world.dice.choice([0.0, 0.0, 0.5]))
        return encode_message("response", message.id, '{"structured":1}')

    def release(self, message: Message) -> None:
        """Do nothing."""

    def tool_calls(self) -> list[Any]:
        return []


class World:
    """What happens with one seed; `problems` says what must not have."""

    def __init__(self, seed: int, protocol: Literal["duplex", "post"] = "duplex") -> None:
        self.seed = seed
        self.protocol: Literal["duplex", "post"] = protocol
        self.doors: dict[str, Listen] = {}
        self.dice = random.Random(seed)
        random.seed(seed)
        self.faults = Faults(self.dice, self.dice.choice([0.0, 0.02, 0.1]))
        self.begun: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.runs_begun: set[str] = set()
        self.runs_never: list[str] = []
        self.servers: dict[str, Server] = {}
        self.lines: list[Any] = []
        self.problems: list[str] = []
        self.outcomes: Counter[str] = Counter()
        self._all: list[Server] = []
        self._drains: list[asyncio.Task[None]] = []
        self._begun: list[asyncio.Task[None]] = []
        self.listed: set[str] = set()

    async def run(self) -> None:
        """Let it all happen."""
        init = NeverStartedError.__init__

        def noted(error: NeverStartedError, cause: ToolExecError, ground: Any, **more: Any) -> None:
            self.runs_never.append(ground.run)
            init(error, cause, ground, **more)

        with patch.object(NeverStartedError, "__init__", noted):
            await self._happen()

    async def _happen(self) -> None:
        by_name = self.dice.random() < 0.5
        places = tuple(map(at, ADDRESSES)) if by_name else ENDPOINTS
        for endpoint in places[: self.dice.choice([1, 2, 2])]:
            self._start(endpoint, Disk())
        settings = RemoteSettings(
            endpoints=(NAME,) if by_name else ENDPOINTS,
            key_id=KEY.id,
            token=KEY.token,
            signing_key=KEY.secret,
            plain_http=True,
            reconnect=2.5,
            overhead=2.0,
            protocol=self.protocol,
        )
        backend = RemoteBackend(settings)
        backend._endpoints = Fleet(self, settings)
        if backend._post is not None:
            discovery = backend._endpoints.discovery
            backend._post = SimulatedPost(settings, discovery, KEY, self.wires, self.doors)
        trouble = asyncio.create_task(self._trouble())
        coming = asyncio.create_task(self._come_and_go() if by_name else asyncio.sleep(0))
        names = [f"{token_hex(2)}-{number}" for number in range(self.dice.randrange(1, 5))]
        programs = [asyncio.create_task(self._one(backend, name)) for name in names]
        if self.dice.random() < 0.1:  # the client dies
            await asyncio.sleep(self.dice.random() * 3)
            for task in programs:
                task.cancel()
            for line in self.lines:
                line.cut()
        done, late = await asyncio.wait(programs, timeout=TIMEOUT + 10)
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                self.problems.append(f"{type(error).__name__}: {error}")
        self.problems += ["a run was lost without a word"] * len(late)
        for task in (trouble, coming, *late):
            task.cancel()
        await asyncio.wait([trouble, coming, *late])
        await backend.aclose()
        if self._begun:
            await asyncio.wait(self._begun)
        await asyncio.sleep(8.0)  # whatever is still on its way arrives, and may start what it likes
        for server in self._all:
            await server.kill()
        if self._drains:
            await asyncio.wait(self._drains)
        self._judge()

    def _judge(self) -> None:
        self.problems += [f"{name} ran {number} times" for name, number in self.begun.items() if number > 1]
        self.problems += [
            f"the call {name} was made {number} times" for name, number in self.calls.items() if number > 1
        ]
        wrong = self.runs_begun.intersection(self.runs_never)
        self.problems += [f"the run {run} began, and was said never to have started" for run in wrong]

    async def _one(self, backend: RemoteBackend, name: str) -> None:
        """Run one program, and compare what is said of it with what became of it."""
        await asyncio.sleep(self.dice.random())
        gateway: Any = Gateway(self)
        request = ExecuteRequest(
            code=name,
            gateway=gateway,
            language="python",
            profile="standard",
            timeout=self.dice.choice([0.5, 2.0, TIMEOUT]),
        )
        try:
            result: CodeResult | None = await backend.execute(request)
            error = result.error if result is not None else None
        except SandboxError as refusal:
            result, error = None, refusal
        if error is None:
            assert result is not None
            self.outcomes["done"] += 1
            if result.value != f"value of {name}" or self.begun[name] != 1:
                self.problems.append(f"{name} gave {result.value!r} and began {self.begun[name]} times")
        elif error.outcome is Outcome.NOT_SENT:
            self.outcomes["never started"] += 1
            if self.begun[name]:
                self.problems.append(f"{name} had begun, and is said never to have: {error}")
        else:
            self.outcomes["lost"] += 1

    # -- what happens meanwhile ------------------------------------------------------------------------------------

    def wires(self) -> Wires:
        """Return what connects to the servers, and to the gateway of the client."""
        return Wires(self.faults, self._at, self.lines)

    def _at(self, host: str, port: int) -> Listen:
        if host in self.doors:
            return self.doors[host]
        server = self.servers.get(f"http://{host}:{port}/v1/execute")
        if server is None:
            raise ConnectionRefusedError("nothing listens")
        return server.answer

    def _start(self, endpoint: str, disk: Disk) -> None:
        self.listed.update(address for address in ADDRESSES if at(address) == endpoint)
        server = Server(self, disk)
        if self.protocol == "duplex":
            self.servers[endpoint] = server
        else:
            self.servers.pop(endpoint, None)
            self._begun.append(asyncio.create_task(self._listen(endpoint, server)))
        self._all.append(server)

    async def _listen(self, endpoint: str, server: Server) -> None:
        await server.listen()
        self.servers[endpoint] = server

    async def look_up(self, _: str, __: int) -> list[str]:
        """Give the addresses that are listed: late, not at all, or some of them, as it happens."""
        dice = self.dice
        await asyncio.sleep(dice.choice([0.0, 0.0, 0.1, 7.0]))
        if dice.random() < 0.2:
            raise OSError("the resolver does not answer")
        known = sorted(self.listed)
        return dice.sample(known, dice.randrange(len(known) + 1)) if dice.random() < 0.1 else known

    async def _come_and_go(self) -> None:
        """Have servers join, and leave: they live on, or drain, once they are not listed any more."""
        dice = self.dice
        while True:
            await asyncio.sleep(dice.random() * 2)
            endpoint = at(address := dice.choice(ADDRESSES))
            if address not in self.listed:
                if endpoint not in self.servers:
                    self._start(endpoint, Disk())
                self.listed.add(address)
            elif len(self.listed) > 1:
                self.listed.discard(address)
                if endpoint in self.servers and dice.random() < 0.5:
                    self._drains.append(asyncio.create_task(self.servers.pop(endpoint).drain()))

    async def _trouble(self) -> None:
        """Cut, kill, restore and replace, at any time."""
        dice = self.dice
        for _ in range(dice.choice([0, 1, 2, 4])):
            await asyncio.sleep(dice.random() * 2)
            if not self.servers:
                return
            endpoint = dice.choice([*self.servers])
            server = self.servers[endpoint]
            match dice.randrange(7):
                case 0:
                    server.cut()
                case 1:
                    for line in self.lines[-2:]:
                        line.go_silent()
                case 2:
                    server.disk.keep()
                case 6:  # it drains, and another one takes its place
                    self._drains.append(asyncio.create_task(server.drain()))
                    self._start(endpoint, Disk())
                case 3:  # another one takes its place, and it lives on, out of reach
                    self._start(endpoint, Disk())
                    server.cut()
                case kind:
                    await server.kill()
                    self.servers.pop(endpoint, None)
                    await asyncio.sleep(dice.choice([0.0, 0.5, 3.0]))
                    if kind == 5:
                        server.disk.roll_back(dice)
                    self._start(endpoint, server.disk)
