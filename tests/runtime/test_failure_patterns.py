"""From what an engine says to the error that it means: with the literal strings of real ones.

Each text is what the engine of that version printed when it was made to fail, or in its source, or in the report of
somebody whom it happened to, named by repository and number.
"""

from __future__ import annotations

import pytest

from toolexec.errors import LimitExceededError, SandboxError, SandboxFailedError, SandboxUnavailableError
from toolexec.runtime.failure_patterns import engine_error

UNAVAILABLE, LIMIT, GONE = SandboxUnavailableError, LimitExceededError, SandboxFailedError

PATTERNS = [
    # docker's command line 28 and podman's 4.3.1, without a daemon
    (
        "Cannot connect to the Docker daemon at unix:///tmp/none.sock. Is the docker daemon running?",
        "engine_down",
        UNAVAILABLE,
    ),
    (
        (
            'Error: unable to connect to Podman socket: Get "http://d/v4.3.1/libpod/_ping": dial unix /tmp/none.sock: '
            "connect: no such file or directory"
        ),
        "engine_down",
        UNAVAILABLE,
    ),
    # ctr 1.6.20, without a daemon
    (
        (
            'ctr: failed to dial "/tmp/none.sock": context deadline exceeded: connection error: desc = "transport: error '
            'while dialing: dial unix:///tmp/none.sock: timeout"'
        ),
        "engine_down",
        UNAVAILABLE,
    ),
    # grpcio 1.85 and aiodocker 0.27, without a daemon
    (
        (
            "failed to connect to all addresses; last error: FAILED_PRECONDITION: unix:/tmp/none.sock: connect failed: "
            "addr: unix:/tmp/none.sock error: No such file or directory"
        ),
        "engine_down",
        UNAVAILABLE,
    ),
    (
        (
            "Cannot connect to Docker Engine via unix:///tmp/none.sock [Cannot connect to unix socket /tmp/none.sock "
            "ssl:default [No such file or directory]]"
        ),
        "engine_down",
        UNAVAILABLE,
    ),
    # docker 18.09, whose containerd was gone (moby/moby 40390)
    (
        (
            "rpc error: code = Unavailable desc = all SubConns are in TransientFailure, latest connection error: connection "
            'error: desc = "transport: Error while dialing dial unix /run/containerd/containerd.sock: connect: connection '
            'refused"'
        ),
        "engine_down",
        UNAVAILABLE,
    ),
    # docker 24 and podman 5, for a user who may not (docker-library/postgres 1124, prometheus-podman-exporter 382)
    (
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Post "
            '"http://%2Fvar%2Frun%2Fdocker.sock/v1.24/images/create?fromImage=postgres&tag=latest": dial unix '
            "/var/run/docker.sock: connect: permission denied"
        ),
        "engine_denied",
        UNAVAILABLE,
    ),
    (
        (
            'unable to connect to Podman socket: Get "http://d/v5.5.1/libpod/_ping": dial unix /run/podman/podman.sock: '
            "connect: permission denied."
        ),
        "engine_denied",
        UNAVAILABLE,
    ),
    # docker 29 (solero/wand 44)
    (
        (
            "Error response from daemon: client version 1.43 is too old. Minimum supported API version is 1.44, please "
            "upgrade your client to a newer version"
        ),
        "api_version",
        UNAVAILABLE,
    ),
    # missing images: docker (daytonaio/daytona 99, HybirdCorp/creme_crm 821), podman 4.3.1, podman 3.4 (podman 19845),
    # containerd 1.6 (its image store), runc 1.1.5 and bubblewrap 0.8.0 without a root
    ("Error response from daemon: No such image: daytonaio/workspace-project:latest", "missing_image", UNAVAILABLE),
    (
        (
            "docker: Error response from daemon: manifest for cremecrm/cremecrm-demo:latest not found: manifest unknown: "
            "manifest unknown."
        ),
        "missing_image",
        UNAVAILABLE,
    ),
    ("Error: localhost/nope:1: image not known", "missing_image", UNAVAILABLE),
    (
        (
            'Error: short-name "swaggerapi/swagger-ui:latest" did not resolve to an alias and no unqualified-search '
            'registries are defined in "/etc/containers/registries.conf"'
        ),
        "missing_image",
        UNAVAILABLE,
    ),
    ('ctr: image "local/py:1": not found', "missing_image", UNAVAILABLE),
    (
        (
            'time="2026-11-21T17:47:19Z" level=error msg="runc run failed: invalid rootfs: stat /nonexistent: no such file '
            'or directory"'
        ),
        "missing_image",
        UNAVAILABLE,
    ),
    ("bwrap: Can't find source path /nonexistent: No such file or directory", "missing_image", UNAVAILABLE),
    ("docker: invalid reference format.", "image_name", UNAVAILABLE),  # docker 28
    # docker without a network (docker/for-win 9227)
    (
        (
            "Error response from daemon: Get https://registry-1.docker.io/v2/: dial tcp: lookup registry-1.docker.io on "
            "192.168.65.1:53: no such host"
        ),
        "registry_unreachable",
        UNAVAILABLE,
    ),
    # the wrong architecture: runc 1.1.5, runsc 20240729, docker 19 (docker/for-linux 105), crun (CIROH-UA 276),
    # docker 20.10 (tonistiigi/binfmt 115), docker (prakhar1989/docker-curriculum 171)
    ("exec /tmp/notexec: exec format error", "architecture", UNAVAILABLE),
    (
        (
            "running container: starting container: starting root container: starting sandbox: creating process: failed to "
            "load /tmp/notexec: exec format error"
        ),
        "architecture",
        UNAVAILABLE,
    ),
    ('standard_init_linux.go:190: exec user process caused "exec format error"', "architecture", UNAVAILABLE),
    (
        (
            '{"msg":"exec container process `/usr/local/bin/python`: Exec format error","level":"error",'
            '"time":"2025-04-03T23:58:31.409487Z"}'
        ),
        "architecture",
        UNAVAILABLE,
    ),
    (
        (
            "WARNING: The requested image's platform (linux/arm64/v8) does not match the detected host platform "
            "(linux/amd64) and no specific platform was requested\nexec /bin/uname: no such file or directory"
        ),
        "architecture",
        UNAVAILABLE,
    ),
    ("no matching manifest for unknown in the manifest list entries", "architecture", UNAVAILABLE),
    # no python3: runc 1.1.5, runsc 20240729, bubblewrap 0.8.0, podman 4.3.1, docker 27 (Freika/dawarich 738), docker 19
    # (docker/for-mac 4116), crun 1.20 (containers/crun 1688), docker 24 (imitator 152)
    (
        (
            'time="2026-11-21T17:47:19Z" level=error msg="runc run failed: unable to start container process: exec: '
            '\\"python9\\": executable file not found in $PATH"'
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "running container: starting container: starting root container: starting sandbox: error finding executable "
            '"python9" in PATH [/usr/bin /bin]: no such file or directory'
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "running container: starting container: starting root container: starting sandbox: creating process: failed to "
            "load /usr/bin/python9: no such file or directory"
        ),
        "no_program",
        UNAVAILABLE,
    ),
    ("bwrap: execvp /usr/bin/python9: No such file or directory", "no_program", UNAVAILABLE),
    (
        (
            'Error: runc: runc create failed: unable to start container process: exec: "python9": executable file not found '
            "in $PATH: OCI runtime attempted to invoke a command that was not found"
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create "
            'failed: runc create failed: unable to start container process: exec: "dev-entrypoint.sh": executable file not '
            "found in $PATH: unknown"
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "docker: Error response from daemon: OCI runtime create failed: container_linux.go:346: starting container "
            'process caused "exec: \\"-v\\": executable file not found in $PATH": unknown.'
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "Error: crun: executable file `nonexistent` not found in $PATH: No such file or directory: OCI runtime attempted "
            "to invoke a command that was not found"
        ),
        "no_program",
        UNAVAILABLE,
    ),
    (
        (
            "docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime "
            'create failed: runc create failed: unable to start container process: exec: "/imitator/bin/imitator": stat '
            "/imitator/bin/imitator: no such file or directory: unknown."
        ),
        "no_program",
        UNAVAILABLE,
    ),
    # a program that nobody may run: runc 1.1.5, runsc 20240729, bubblewrap 0.8.0
    (
        (
            'time="2026-11-21T17:47:20Z" level=error msg="runc run failed: unable to start container process: exec: '
            '\\"/etc/passwd\\": permission denied"'
        ),
        "program_denied",
        UNAVAILABLE,
    ),
    (
        (
            "running container: starting container: starting root container: starting sandbox: creating process: failed to "
            "load /etc/passwd: permission denied"
        ),
        "program_denied",
        UNAVAILABLE,
    ),
    ("bwrap: execvp /etc/passwd: Permission denied", "program_denied", UNAVAILABLE),
    # runtimes: docker 27 (google/gvisor 11021) and 18 (gvisor 87, 55), podman 4.3.1, containerd (kata-containers 9256, 5800)
    ("docker: Error response from daemon: unknown or invalid runtime name: runsc", "runtime", UNAVAILABLE),
    ("docker: Error response from daemon: Unknown runtime specified runsc.", "runtime", UNAVAILABLE),
    (
        (
            "docker: Error response from daemon: OCI runtime create failed: /usr/local/bin/runsc did not terminate "
            "sucessfully: unknown."
        ),
        "runtime",
        UNAVAILABLE,
    ),
    ('Error: default OCI runtime "nosuch" not found: invalid argument', "runtime", UNAVAILABLE),
    (
        (
            'ctr: failed to start shim: failed to resolve runtime path: runtime "io.containerd.kata.v2" binary not installed '
            '"containerd-shim-kata-v2": file does not exist: unknown'
        ),
        "runtime",
        UNAVAILABLE,
    ),
    (
        (
            "ctr: failed to start shim: start failed: : fork/exec /usr/bin/containerd-shim-kata-v2: no such file or "
            "directory: unknown"
        ),
        "runtime",
        UNAVAILABLE,
    ),
    # kata 2.3 (kata-containers 3459)
    (
        "failed to create containerd task: failed to create shim: open /dev/vhost-vsock: no such device: unknown",
        "no_kvm",
        UNAVAILABLE,
    ),
    # memory: runc 1.1.5, docker 20.10 (aws/amazon-ecs-agent 3021), docker 18.09 (moby/moby 38921), crun (crun 635)
    (
        (
            'time="2026-11-21T17:47:21Z" level=error msg="runc run failed: unable to start container process: error during '
            "container init: error setting cgroup config for procHooks process: unable to set memory limit to 1000000 "
            '(current usage: 2117632, peak usage: 2252800)"'
        ),
        "memory",
        LIMIT,
    ),
    (
        (
            "Error response from daemon: OCI runtime create failed: container_linux.go:380: starting container process "
            "caused: container init was OOM-killed (memory limit too low?): unknown"
        ),
        "memory",
        LIMIT,
    ),
    (
        (
            'process_linux.go:390: setting cgroup config for procHooks process caused \\"failed to write 5242880 to '
            "memory.memsw.limit_in_bytes: write /sys/fs/cgroup/memory/docker/0e4e/memory.memsw.limit_in_bytes: device or "
            'resource busy\\"'
        ),
        "memory",
        LIMIT,
    ),
    ("OOM: the memory limit could be too low: read from the init process", "memory", LIMIT),
    ("fork/exec /proc/self/exe: cannot allocate memory", "memory", LIMIT),  # runc's words for ENOMEM
    # processes: bubblewrap 0.8.0 under `ulimit -u 1`, docker (moby/moby 9868)
    ("bwrap: Creating new namespace failed: Resource temporarily unavailable", "processes", LIMIT),
    ("runtime/cgo: pthread_create failed: Resource temporarily unavailable", "processes", LIMIT),
    # namespaces: bubblewrap 0.8.0 without capabilities, with user.max_user_namespaces=0, bubblewrap 0.9 on Ubuntu 24.04
    # (bubblewrap 632, anthropic-experimental/sandbox-runtime 74), and in a container (Clouisle 373)
    ("bwrap: Creating new namespace failed: Operation not permitted", "no_namespaces", UNAVAILABLE),
    (
        "bwrap: Creating new namespace failed: nesting depth or /proc/sys/user/max_*_namespaces exceeded (ENOSPC)",
        "no_namespaces",
        UNAVAILABLE,
    ),
    ("bwrap: setting up uid map: Permission denied", "no_namespaces", UNAVAILABLE),
    ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "no_namespaces", UNAVAILABLE),
    (
        (
            "bwrap: No permissions to create new namespace, likely because the kernel does not allow non-privileged user "
            "namespaces."
        ),
        "no_namespaces",
        UNAVAILABLE,
    ),
    # seccomp, options and mounts: bubblewrap 0.8.0
    ("bwrap: Can't read seccomp data: Bad file descriptor", "seccomp", UNAVAILABLE),
    ("bwrap: Invalid seccomp data, must be multiple of 8", "seccomp", UNAVAILABLE),
    (
        (
            "bwrap: Unable to set up system call filtering as requested: prctl(PR_SET_SECCOMP) reported EINVAL. (Hint: this "
            "requires a kernel configured with CONFIG_SECCOMP and CONFIG_SECCOMP_FILTER.)"
        ),
        "seccomp",
        UNAVAILABLE,
    ),
    ("bwrap: Unknown option --bogus", "old_engine", UNAVAILABLE),
    ("bwrap: Can't mkdir /nothere: Read-only file system", "mount", UNAVAILABLE),
    ("bwrap: Can't mkdir parents for /nothere/x: Read-only file system", "mount", UNAVAILABLE),
    ("bwrap: Can't chdir to /nope: No such file or directory", "mount", UNAVAILABLE),
    # a missing source: runc 1.1.5
    (
        (
            'time="2026-11-21T17:47:22Z" level=error msg="runc run failed: unable to start container process: error during '
            'container init: error mounting \\"/nothere\\" to rootfs at \\"/tmp\\": stat /nothere: no such file or directory"'
        ),
        "mount",
        UNAVAILABLE,
    ),
    # disks and control groups: docker 17.06 (moby/moby 29638), docker (unraid-docker-templates 14), podman 4.3.1 as in
    # this project's notes, crun 1.8.1
    (
        (
            'applying cgroup configuration for process caused \\"mkdir /sys/fs/cgroup/memory/docker/74ad1f49: no space left on '
            'device\\"'
        ),
        "cgroups_full",
        UNAVAILABLE,
    ),
    (
        "OCI runtime exec failed: exec failed: unable to start container process: open /dev/ptmx: no space left on device",
        "engine_disk_full",
        UNAVAILABLE,
    ),
    (
        (
            "Error: runc: runc create failed: unable to start container process: error during container init: error setting "
            "rlimits for ready process: error setting rlimit type 7: operation not permitted: OCI permission denied"
        ),
        "limits_denied",
        UNAVAILABLE,
    ),
    ("cgroups in hybrid mode not supported, drop all controllers from cgroupv2", "limits_denied", UNAVAILABLE),
    # containers that are gone: docker's daemon, containerd's task service and its store, docker 18.09 (moby/moby 38921)
    ("Error response from daemon: Container 3f2a is not running", "container_gone", GONE),
    ("Error response from daemon: No such container: toolexec-1", "container_gone", GONE),
    ("no running task found: task toolexec-1 not found: not found", "container_gone", GONE),
    ('container "toolexec-1" in namespace "toolexec": not found', "container_gone", GONE),
    ("docker: Error response from daemon: cannot start a stopped process: unknown.", "container_gone", GONE),
    ('snapshot "toolexec-1": already exists', "name_taken", UNAVAILABLE),  # containerd's store
    ("rpc error: code = DeadlineExceeded desc = context deadline exceeded", "engine_slow", UNAVAILABLE),
    # nothing special: runsc 20240729 without a root, kata 3 (kata-containers 6752, 7183)
    (
        (
            "running container: creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox "
            "to start: EOF"
        ),
        "refused",
        UNAVAILABLE,
    ),
    ("ctr: failed to create shim task: invalid argument", "refused", UNAVAILABLE),
    (
        (
            'ctr: failed to create shim task: Others("failed to handler message try init runtime instance\\n\\nCaused by:\\n'
            '    0: init runtime handler\\n    1: start sandbox\\n    2: start vm"): unknown'
        ),
        "refused",
        UNAVAILABLE,
    ),
]
"""What engines really print, where from, and what it means."""


@pytest.mark.parametrize(("said", "reason", "kind"), PATTERNS)
def test_what_it_says(said: str, reason: str, kind: type[SandboxError]) -> None:
    """Each message of a real engine is classified; the error has the line, what to do, and no more."""
    error = engine_error(f"some line before\n{said}\n", kind="docker", image="local/py:1")
    assert error is not None
    assert (error.details["reason"], type(error)) == (reason, kind)
    assert error.details["said"] in said
    assert error.details["said"]
    assert str(error).endswith(f"; it said: {error.details['said']}")
    assert not {"{", "}"} & set(str(error).partition("; it said:")[0])
    if kind is LimitExceededError:
        assert error.details["resource"] in ("memory", "pids")


@pytest.mark.parametrize(
    ("said", "strings"),
    [
        ('exec: "node": executable file not found in $PATH: unknown', ["local/py:1 has no node;"]),
        ("exec user process caused: no such file or directory", ["has no python3;"]),
        (
            "docker: Error response from daemon: unknown or invalid runtime name: runsc.",
            ["runtime runsc;", "docker"],
        ),
        ("Error response from daemon: No such image: local/py:1", ["local/py:1", "toolexec image build"]),
        ("bwrap: Can't mkdir /work: Read-only file system", ["/work cannot be mounted"]),
        ("runsc did not terminate successfully: unknown", ["a working OCI runtime of that name;"]),
    ],
)
def test_what_to_do(said: str, strings: list[str]) -> None:
    """The message names what is missing, and where."""
    error = engine_error(said, kind="docker", image="local/py:1")
    assert all(text in str(error) for text in strings), str(error)


@pytest.mark.parametrize("said", ["", "hello", "Traceback (most recent call last):", "Killed", "{image} {0}"])
def test_what_means_nothing(said: str) -> None:
    """Other words are no error of an engine."""
    assert engine_error(said) is None


def test_it_says_very_much() -> None:
    """Only the end is looked at, and only as much is kept."""
    error = engine_error("x" * 100_000 + "\nbwrap: " + "y" * 3000 + ": exec format error " + "z" * 3000)
    assert error is None or len(str(error)) < 2500
    error = engine_error("No such image: a\n" + "x" * 100_000)
    assert error is None


def test_its_words_are_no_format() -> None:
    """Braces in what it says change nothing, and without names the message still reads well."""
    error = engine_error("No such image: {kind}{0}{}")
    assert error is not None
    assert "{kind}{0}{}" in str(error)
    assert "the image of the configuration is not there" in str(error)
