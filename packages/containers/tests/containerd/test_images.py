"""Images of containerd's: found by name, taken in from an archive, and really the ones that were asked for."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import socket
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from packages.containers.tests.engines import containerd as daemons
from packages.containers.tests.engines.containerd import ContainerdDaemon

from toolexec.containers import Facts, ImageStore, StoredImage, image_machine
from toolexec.errors import SandboxUnavailableError
from toolexec.sandbox import Image
from toolexec_containers.containerd.api import snapshots_pb2
from toolexec_containers.containerd.client import Calls, Client, is_lost, status_of
from toolexec_containers.containerd.images import Images
from toolexec_containers.containerd.resolver import Resolver

pytestmark = pytest.mark.anyio
containerd_daemon = daemons.containerd_daemon

LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layout:
    """An OCI layout that is made by hand, so that it can be wrong."""

    def __init__(self, *files: str) -> None:
        self.blobs: dict[str, bytes] = {}
        self.layers = [self._layer(name) for name in files]
        self.config: dict[str, Any] = {
            "architecture": image_machine(),
            "os": "linux",
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in self.layers]},
        }
        self.platform: dict[str, str] | None = None

    def add(self, data: bytes, media_type: str = "") -> dict[str, Any]:
        """One more blob."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        self.blobs[digest] = data
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def _layer(self, name: str) -> dict[str, Any]:
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(name)
            tar.addfile(entry, io.BytesIO(name.encode()))
        return self.add(data.getvalue(), LAYER)

    def manifest(self) -> dict[str, Any]:
        """Its descriptor."""
        config = self.add(json.dumps(self.config).encode(), "application/vnd.oci.image.config.v1+json")
        document = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": self.layers}
        found = self.add(json.dumps(document).encode(), MANIFEST)
        return {**found, "platform": self.platform} if self.platform else found

    def write(self, path: Path, target: dict[str, Any] | None = None, name: str = "") -> Path:
        """The tar of all that."""
        target = target or self.manifest()
        if name:
            target["annotations"] = {"io.containerd.image.name": name}
        with tarfile.open(path, "w") as tar:
            parts = {
                "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
                "index.json": json.dumps({"schemaVersion": 2, "manifests": [target]}).encode(),
                **{f"blobs/{digest.replace(':', '/')}": data for digest, data in self.blobs.items()},
            }
            for part, data in parts.items():
                entry = tarfile.TarInfo(part)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
        return path


@pytest.fixture
async def client(containerd_daemon: ContainerdDaemon) -> AsyncIterator[Client]:
    """A client; images that a test makes are gone in the end."""
    client = Client(containerd_daemon.socket, daemons.NAMESPACE)
    yield client
    client.close()
    for name in containerd_daemon.ctr("images", "ls", "-q").split():
        if "/t-" in name:
            containerd_daemon.ctr("images", "rm", "--sync", name)
    containerd_daemon.check_left()


@pytest.fixture
def images(client: Client, containerd_daemon: ContainerdDaemon) -> Images:
    """Images by that client."""
    return Images(client, containerd_daemon.snapshotter)


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    """A store of the test's own."""
    return ImageStore(tmp_path / "store")


def keep(store: ImageStore, name: str, text: str) -> StoredImage:
    """A new image in a store."""
    root = store.directory.parent / f"root-{name}-{text}"
    root.mkdir(parents=True)
    (root / "file").write_text(text)
    return store.add(name, root, Facts(python="3.11"))


class TestTakingIn:
    async def test_several_layers(
        self, images: Images, client: Client, containerd_daemon: ContainerdDaemon, tmp_path: Path
    ) -> None:
        """Each layer is a snapshot on the one below; what is there already is not made again."""
        layout = Layout("a", "b", "c")
        archive = layout.write(tmp_path / "i.tar")
        first = await images.take_in("docker.io/library/t-layers:latest", archive, "sha256:x")
        again = await images.take_in("docker.io/library/t-layers:latest", archive, "sha256:y")
        assert first.digest == again.digest == layout.manifest()["digest"]
        found = await images.find(["nothing", "docker.io/library/t-layers:latest"])
        assert found is not None
        assert found.labels == {"toolexec.digest": "sha256:y"}
        top = await images.unpacked(found)
        asked = snapshots_pb2.StatSnapshotRequest(snapshotter=containerd_daemon.snapshotter, key=top)
        assert (await client.call(Calls.stat_snapshot, asked)).info.parent
        containerd_daemon.check_left()

    async def test_at_the_same_time(self, images: Images, tmp_path: Path) -> None:
        """Two who take in the same image do not harm each other."""
        archive = Layout("same", "time").write(tmp_path / "i.tar")
        both = await asyncio.gather(*(images.take_in(f"docker.io/library/t-{n}:latest", archive, "") for n in range(3)))
        assert len({await images.unpacked(each) for each in both}) == 1

    async def test_survives_collection(
        self, images: Images, containerd_daemon: ContainerdDaemon, tmp_path: Path
    ) -> None:
        """Nothing of an image is garbage while the image is there; all of it is afterwards."""
        found = await images.take_in("docker.io/library/t-kept:latest", Layout("kept").write(tmp_path / "i.tar"), "")
        top = await images.unpacked(found)
        containerd_daemon.ctr("leases", "create", "--id", "collect")
        containerd_daemon.ctr("leases", "delete", "--sync", "collect")
        assert await images.unpacked(found) == top
        containerd_daemon.ctr("images", "rm", "--sync", found.name)
        with pytest.raises(SandboxUnavailableError, match="is not complete"):
            await images.unpacked(found)

    async def test_for_several_machines(
        self, images: Images, tmp_path: Path, containerd_daemon: ContainerdDaemon
    ) -> None:
        """Of an index, the image for this machine is used."""
        other, mine = Layout("other"), Layout("mine")
        other.platform = {"os": "linux", "architecture": "riscv64"}
        mine.platform = {"os": "linux", "architecture": image_machine()}
        both = [other.manifest(), mine.manifest()]
        mine.blobs |= other.blobs
        index = mine.add(
            json.dumps({"schemaVersion": 2, "manifests": both}).encode(), "application/vnd.oci.image.index.v1+json"
        )
        name = "docker.io/library/t-index:latest"
        archive = mine.write(tmp_path / "i.tar", index, name)
        containerd_daemon.ctr("images", "import", "--no-unpack", "--all-platforms", str(archive))
        found = await images.find([name])
        assert found is not None
        assert await images.unpacked(found) == mine.layers[0]["digest"]

    async def test_for_another_machine(
        self, images: Images, tmp_path: Path, containerd_daemon: ContainerdDaemon
    ) -> None:
        """An index without this machine is refused."""
        other = Layout("other")
        other.platform = {"os": "linux", "architecture": "riscv64"}
        index = other.add(
            json.dumps({"schemaVersion": 2, "manifests": [other.manifest()]}).encode(),
            "application/vnd.oci.image.index.v1+json",
        )
        name = "docker.io/library/t-other:latest"
        archive = other.write(tmp_path / "i.tar", index, name)
        containerd_daemon.ctr("images", "import", "--no-unpack", "--all-platforms", str(archive))
        found = await images.find([name])
        assert found is not None
        with pytest.raises(SandboxUnavailableError, match="not for this machine"):
            await images.unpacked(found)

    async def test_wrong_content(self, images: Images, tmp_path: Path) -> None:
        """A blob that is not what its digest says is refused by containerd."""
        layout = Layout("right")
        digest = layout.layers[0]["digest"]
        target = layout.manifest()
        layout.blobs[digest] = layout.blobs[digest].replace(b"right", b"wrong")
        with pytest.raises(SandboxUnavailableError, match="digest"):
            await images.take_in("docker.io/library/t-w:latest", layout.write(tmp_path / "i.tar", target), "")
        assert await images.find(["docker.io/library/t-w:latest"]) is None

    async def test_wrong_layer(self, images: Images, tmp_path: Path) -> None:
        """A layer whose content is another than the configuration says is refused."""
        layout = Layout("layer")
        layout.config["rootfs"]["diff_ids"] = ["sha256:" + "0" * 64]
        with pytest.raises(SandboxUnavailableError, match="not what it should be"):
            await images.take_in("docker.io/library/t-w:latest", layout.write(tmp_path / "i.tar"), "")

    async def test_no_layers(self, images: Images, tmp_path: Path) -> None:
        """An image with nothing in it cannot be run."""
        with pytest.raises(SandboxUnavailableError, match="empty"):
            await images.take_in("docker.io/library/t-w:latest", Layout().write(tmp_path / "i.tar"), "")

    @pytest.mark.parametrize("damage", ["no tar", "no index", "no manifest", "no layer", "another machine", "huge"])
    async def test_damaged(self, images: Images, tmp_path: Path, damage: str) -> None:
        """An archive that is none is an error that says what to do."""
        layout = Layout("x")
        target = layout.manifest()
        path = tmp_path / "i.tar"
        match damage:
            case "no index":
                with tarfile.open(path, "w"):
                    pass
            case "no tar":
                path.write_bytes(b"x" * 5000)
            case "no manifest":
                del layout.blobs[target["digest"]]
            case "no layer":
                del layout.blobs[layout.layers[0]["digest"]]
            case "huge":
                layout.blobs[target["digest"]] += b" " * (5 << 20)
            case _:
                target["platform"] = {"os": "plan9", "architecture": "x"}
        if not path.exists():
            layout.write(path, target)
        with pytest.raises(SandboxUnavailableError, match=r"is damaged: .*; remove the image and make it again"):
            await images.take_in("docker.io/library/t-w:latest", path, "")

    async def test_manifest_that_is_none(
        self, images: Images, tmp_path: Path, containerd_daemon: ContainerdDaemon
    ) -> None:
        """Content of containerd may be damaged as well."""
        layout = Layout("x")
        found = await images.take_in("docker.io/library/t-m:latest", layout.write(tmp_path / "i.tar"), "")
        broken = type(found)(name=found.name, digest=layout.layers[0]["digest"])
        with pytest.raises(SandboxUnavailableError, match="is damaged"):
            await images.unpacked(broken)

    @pytest.mark.full
    async def test_cancelled(self, images: Images, tmp_path: Path, containerd_daemon: ContainerdDaemon) -> None:
        """A cancelled import leaves no lease and no snapshot, and can be repeated."""
        layout = Layout("c")
        layout.layers.append(layout.add(bytes(30 << 20), LAYER))
        layout.config["rootfs"]["diff_ids"].append(layout.layers[-1]["digest"])
        archive = layout.write(tmp_path / "i.tar")
        for delay in (0.0, 0.005, 0.02, 0.05):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await images.take_in("docker.io/library/t-c:latest", archive, "")
                    await asyncio.sleep(1)
            containerd_daemon.check_left()


class TestResolving:
    def resolver(
        self, client: Client, daemon: ContainerdDaemon, store: ImageStore | None, policy: Any = "missing"
    ) -> Resolver:
        """A new one."""
        return Resolver(client, daemon.snapshotter, policy, store)

    async def test_from_the_store(self, client: Client, containerd_daemon: ContainerdDaemon, store: ImageStore) -> None:
        """A missing image comes from the store, once; a newer one of the store replaces it."""
        first = keep(store, "t-store", "one")
        image = await self.resolver(client, containerd_daemon, store).resolve("t-store")
        assert image.reference == "docker.io/library/t-store:latest"
        same = self.resolver(client, containerd_daemon, ImageStore(store.directory / "empty"))
        assert await same.resolve("t-store") == image
        second = keep(store, "t-store", "two")
        assert first.digest != second.digest
        newer = self.resolver(client, containerd_daemon, store)
        other = await newer.resolve("t-store")
        assert other.digest != image.digest
        assert await newer.resolve("t-store") is other
        assert await newer.parent(other) == second.digest
        assert await newer.parent(Image(name="t-store", reference="")) == second.digest

    async def test_pinned(self, client: Client, containerd_daemon: ContainerdDaemon, store: ImageStore) -> None:
        """A pin holds, be it containerd's digest or that of the store; any other image is refused."""
        stored = keep(store, "t-pin", "one")
        image = await self.resolver(client, containerd_daemon, store, "never").resolve(f"t-pin@{stored.digest}")
        again = await self.resolver(client, containerd_daemon, None).resolve(f"t-pin@{image.digest}")
        assert again.digest == image.digest
        wrong = "sha256:" + "0" * 64
        with pytest.raises(SandboxUnavailableError, match="not the one that it is pinned to"):
            await self.resolver(client, containerd_daemon, store).resolve(f"t-pin@{wrong}")
        other = keep(store, "t-pin", "two")
        replaced = await self.resolver(client, containerd_daemon, store).resolve(f"t-pin@{other.digest}")
        assert replaced.digest != image.digest

    async def test_nowhere(self, client: Client, containerd_daemon: ContainerdDaemon, store: ImageStore) -> None:
        """A missing image is an error with the command that gets it."""
        for policy in ("missing", "never"):
            with pytest.raises(SandboxUnavailableError, match=r"ctr -a .* -n toolexec images pull quay.io/t-none:1"):
                await self.resolver(client, containerd_daemon, store, policy).resolve("quay.io/t-none:1")

    async def test_no_name(self, client: Client, containerd_daemon: ContainerdDaemon, store: ImageStore) -> None:
        """Nor can a name that is none be had, or an image that is named by a digest only."""
        for name in ("NO", "sha256:" + "0" * 64):
            with pytest.raises(SandboxUnavailableError, match="name"):
                await self.resolver(client, containerd_daemon, store).resolve(name)

    async def test_forgotten(self, client: Client, containerd_daemon: ContainerdDaemon, store: ImageStore) -> None:
        """A removed image is looked for again."""
        keep(store, "t-forget", "one")
        resolver = self.resolver(client, containerd_daemon, store)
        image = await resolver.resolve("t-forget")
        containerd_daemon.ctr("images", "rm", "--sync", image.reference)
        assert await resolver.resolve("t-forget") is image
        resolver.forget(image)
        assert (await resolver.resolve("t-forget")).digest == image.digest
        assert image.reference in containerd_daemon.ctr("images", "ls", "-q")


class TestClient:
    async def test_closed(self, containerd_daemon: ContainerdDaemon) -> None:
        """A closed client says so, also to those who wait."""
        client = Client(containerd_daemon.socket, daemons.NAMESPACE)
        found = Images(client, containerd_daemon.snapshotter)
        assert await found.find(["nothing"]) is None
        client.close()
        with pytest.raises(SandboxUnavailableError, match="is closed") as caught:
            await found.find(["nothing"])
        assert status_of(caught.value) == "CANCELLED"

    async def test_slow(self, tmp_path: Path) -> None:
        """A daemon that does not answer in time, or hangs up."""
        asked = snapshots_pb2.StatSnapshotRequest(snapshotter="overlayfs", key="x")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(tmp_path / "s"))
            listener.listen()
            client = Client(str(tmp_path / "s"), daemons.NAMESPACE)
            with pytest.raises(SandboxUnavailableError, match="in time") as caught:
                await client.call(Calls.stat_snapshot, asked, seconds=0.2)
            assert status_of(caught.value) == "DEADLINE_EXCEEDED"
            assert is_lost(caught.value)
            waiting = asyncio.create_task(client.call(Calls.stat_snapshot, asked))
            await asyncio.sleep(0.05)
            client.close()
            with pytest.raises(SandboxUnavailableError) as caught:
                await waiting
            assert status_of(caught.value) == "CANCELLED"

    async def test_refused(self, client: Client) -> None:
        """The daemon's error is passed on."""
        asked = snapshots_pb2.StatSnapshotRequest(snapshotter="none", key="x")
        with pytest.raises(SandboxUnavailableError, match=r"could not do Snapshots\.Stat: snapshotter not loaded"):
            await client.call(Calls.stat_snapshot, asked)
