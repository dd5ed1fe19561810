"""Which system calls are allowed: our own profile, and profiles of users in Docker's format."""

from __future__ import annotations

import errno
import json
import platform
from pathlib import Path
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.runtime.containers.seccomp import (
    ALLOW,
    Action,
    Condition,
    Profile,
    Rule,
    default_profile,
    machine_name,
    oci_seccomp,
    read_profile,
    seccomp_profile,
    syscall_numbers,
)
from toolexec.runtime.containers.seccomp_calls import ALLOWED

MACHINES = ["x86_64", "aarch64"]
ERRNO = {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": []}


def written(directory: Path, data: Any) -> Path:
    path = directory / "profile.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def rules(directory: Path, *items: dict[str, Any], machine: str = "x86_64") -> tuple[Rule, ...]:
    return read_profile(written(directory, {**ERRNO, "syscalls": [*items]}), machine).rules


class TestNumbers:
    """The tables of system calls."""

    @pytest.mark.parametrize(
        ("machine", "numbers"),
        [
            ("x86_64", {"read": 0, "clone": 56, "mount": 165, "openat2": 437, "futex_waitv": 449, "mseal": 462}),
            ("aarch64", {"read": 63, "clone": 220, "mount": 40, "openat2": 437, "futex_waitv": 449, "mseal": 462}),
        ],
    )
    def test_known_ones(self, machine: str, numbers: dict[str, int]) -> None:
        """Some that everybody knows, by the headers of the kernel."""
        table = syscall_numbers(machine)
        assert {name: table[name] for name in numbers} == numbers
        assert len(set(table.values())) == len(table)

    def test_newer_calls_have_one_number(self) -> None:
        """From 424 on all architectures count alike."""
        one, other = ({n: v for n, v in syscall_numbers(machine).items() if v >= 424} for machine in MACHINES)
        assert one == other

    def test_they_are_those_of_this_kernel(self) -> None:
        """Where the headers of the kernel are installed they say the same."""
        header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
        if platform.machine() != "x86_64" or not header.is_file():
            pytest.skip("the headers of the kernel for x86_64 are not here: sudo apt-get install linux-libc-dev")
        table = syscall_numbers("x86_64")
        found = 0
        for line in header.read_text(encoding="ascii").splitlines():
            words = line.split()
            if words[:1] == ["#define"] and words[1].startswith("__NR_") and words[1][5:] in table:
                assert int(words[2]) == table[words[1][5:]], words
                found += 1
        assert found > 350

    @pytest.mark.parametrize(("said", "name"), [("amd64", "x86_64"), ("arm64", "aarch64"), ("aarch64", "aarch64")])
    def test_names_of_machines(self, said: str, name: str) -> None:
        """Those of other systems mean the same; without one it is this machine."""
        assert machine_name(said) == name
        assert machine_name() == machine_name(platform.machine())

    def test_another_machine(self) -> None:
        """There is no filter for it, and the error lists those there are."""
        with pytest.raises(ConfigurationError, match="riscv64, only for x86_64 and aarch64"):
            syscall_numbers("riscv64")


class TestOurProfile:
    """What programs may ask the kernel for."""

    @pytest.mark.parametrize(
        "name",
        """read openat openat2 statx faccessat2 close_range rseq futex futex_waitv execve wait4 epoll_pwait2 eventfd2
        memfd_create getrandom landlock_create_ruleset landlock_restrict_self seccomp prctl pidfd_open clock_nanosleep
        copy_file_range fchmodat2 membarrier sched_getaffinity prlimit64 sigaltstack mprotect inotify_init1""".split(),
    )
    def test_what_programs_need(self, name: str) -> None:
        """Allows common calls, whatever the arguments are."""
        assert default_profile().chains()[name] == (Rule(ALLOWED, ALLOW),)

    @pytest.mark.parametrize(
        "name",
        """mount umount2 move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr pivot_root chroot unshare
        setns ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp keyctl add_key request_key bpf
        perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register init_module finit_module
        delete_module kexec_load kexec_file_load reboot swapon swapoff sethostname setdomainname settimeofday
        clock_settime iopl ioperm modify_ldt open_by_handle_at name_to_handle_at fanotify_init quotactl quotactl_fd
        acct syslog vhangup lookup_dcookie nfsservctl mbind set_mempolicy get_mempolicy move_pages migrate_pages
        memfd_secret uselib ustat sysfs create_module query_module listmount statmount open_tree_attr""".split(),
    )
    def test_what_reaches_out(self, name: str) -> None:
        """Refuses such calls with EPERM, by not mentioning them."""
        profile = default_profile()
        assert name not in profile.chains()
        assert profile.default == Action("errno", errno.EPERM)

    def test_every_name_is_a_call(self) -> None:
        """No name is misspelled: each is known on one of the machines, and said once."""
        known = {*syscall_numbers("x86_64"), *syscall_numbers("aarch64")}
        assert {*default_profile().chains()} <= known
        assert len(ALLOWED) == len(set(ALLOWED))

    def test_what_depends_on_arguments(self) -> None:
        """Namespaces, kinds of sockets and personalities; `clone3` is not there, so that programs use `clone`."""
        chains = default_profile().chains()
        conditional = {name for name, found in chains.items() if any(rule.when for rule in found)}
        assert conditional == {"clone", "socket", "socketpair", "personality"}
        assert chains["clone3"][0].action == Action("errno", errno.ENOSYS)

    @pytest.mark.parametrize("machine", MACHINES)
    def test_as_an_oci_runtime_reads_it(self, machine: str) -> None:
        """Only the native architecture, and masks in the place where libseccomp has them."""
        data = oci_seccomp(default_profile(), machine)
        assert data["defaultAction"] == "SCMP_ACT_ERRNO"
        assert data["defaultErrnoRet"] == errno.EPERM
        assert data["architectures"] == [f"SCMP_ARCH_{machine.upper()}"]
        clone = next(item for item in data["syscalls"] if item["names"] == ["clone"])
        assert clone == {
            "names": ["clone"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        assert {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS} in data["syscalls"]
        assert json.loads(json.dumps(data)) == data

    def test_settings(self, tmp_path: Path) -> None:
        """`default` is ours, `unconfined` none, and the rest a file."""
        assert seccomp_profile("default") is default_profile()
        assert seccomp_profile("unconfined") is None
        assert seccomp_profile(str(written(tmp_path, ERRNO)), "x86_64") == Profile(Action("errno", 1), ())


class TestProfilesOfUsers:
    """Docker's format."""

    def test_back_and_forth(self, tmp_path: Path) -> None:
        """A profile written for an OCI runtime is in its format, and means the same."""
        data = oci_seccomp(default_profile(), "x86_64")
        assert read_profile(written(tmp_path, data), "x86_64") == default_profile()
        whens = (Condition(0, "ge", 5), Condition(1, "ne", 0), Condition(5, "masked", 1, 3))
        other = Profile(Action("kill_thread"), (Rule(("read",), Action("trap"), whens),))
        assert read_profile(written(tmp_path, oci_seccomp(other, "aarch64")), "aarch64") == other

    def test_a_whole_one(self, tmp_path: Path) -> None:
        """Names, actions, errors and conditions."""
        profile = read_profile(
            written(
                tmp_path,
                {
                    "defaultAction": "SCMP_ACT_ERRNO",
                    "defaultErrnoRet": 38,
                    "archMap": [{"architecture": "SCMP_ARCH_X86_64", "subArchitectures": ["SCMP_ARCH_X86"]}],
                    "syscalls": [
                        {"names": ["read", "write"], "action": "SCMP_ACT_ALLOW", "args": None, "comment": ""},
                        {"name": "ptrace", "action": "SCMP_ACT_KILL_PROCESS"},
                        {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13},
                        {
                            "names": ["socket"],
                            "action": "SCMP_ACT_ALLOW",
                            "args": [
                                {"index": 0, "value": 255, "valueTwo": 1 + 256, "op": "SCMP_CMP_MASKED_EQ"},
                                {"index": 2, "value": 9, "op": "SCMP_CMP_NE"},
                            ],
                        },
                    ],
                },
            ),
            "x86_64",
        )
        assert profile == Profile(
            Action("errno", 38),
            (
                Rule(("read", "write"), ALLOW),
                Rule(("ptrace",), Action("kill_process")),
                Rule(("mount",), Action("errno", 13)),
                Rule(("socket",), ALLOW, (Condition(0, "masked", 1, 255), Condition(2, "ne", 9))),
            ),
        )

    @pytest.mark.parametrize(
        ("item", "machine", "there"),
        [
            ({"includes": {"arches": ["amd64", "x32"]}}, "x86_64", True),
            ({"includes": {"arches": ["amd64", "x32"]}}, "aarch64", False),
            ({"excludes": {"arches": ["arm64"]}}, "x86_64", True),
            ({"excludes": {"arches": ["arm64"]}}, "aarch64", False),
            ({"includes": {"caps": ["CAP_SYS_ADMIN"]}}, "x86_64", False),
            ({"excludes": {"caps": ["CAP_SYS_ADMIN"]}}, "x86_64", True),
            ({"includes": {"minKernel": "3.2"}}, "x86_64", True),
            ({"includes": {"minKernel": "999.0"}}, "x86_64", False),
            ({"excludes": {"minKernel": "3.2"}}, "x86_64", False),
            ({"excludes": {"minKernel": "999.0"}}, "x86_64", True),
            ({"includes": {}, "excludes": None}, "x86_64", True),
        ],
        ids=str,
    )
    def test_rules_for_others(self, tmp_path: Path, item: dict[str, Any], machine: str, there: bool) -> None:
        """Rules for other machines, kernels and for capabilities, of which there are none, do not count."""
        found = rules(tmp_path, {"names": ["read"], "action": "SCMP_ACT_ALLOW", **item}, machine=machine)
        assert bool(found) is there

    def test_two_conditions_on_one_argument(self, tmp_path: Path) -> None:
        """Any of them is enough, as it is to runc."""
        args = [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"} for value in (1, 2)]
        found = rules(tmp_path, {"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": args})
        assert found == tuple(Rule(("socket",), ALLOW, (Condition(0, "eq", value),)) for value in (1, 2))

    def test_a_rule_without_conditions_is_final(self) -> None:
        """Such a rule makes the others for its call void, in any order, as in libseccomp."""
        final = Rule(("a", "b"), ALLOW)
        others = (Rule(("a",), Action("log"), (Condition(0, "eq", 1),)), final, Rule(("a",), Action("errno", 1)))
        assert Profile(ALLOW, others).chains() == {"a": (final,), "b": (final,)}

    @pytest.mark.parametrize("path", ["/usr/share/containers/seccomp.json"])
    @pytest.mark.parametrize("machine", MACHINES)
    def test_one_that_is_shipped(self, path: str, machine: str) -> None:
        """Podman's own is understood, and lets no namespaces be made without a capability either."""
        if not Path(path).is_file():
            pytest.skip(f"{path} is not here: sudo apt-get install golang-github-containers-common")
        found = read_profile(Path(path), machine).chains()
        assert found["read"][0].action == ALLOW
        assert found["bpf"][0].action == Action("errno", 1)

    @pytest.mark.parametrize(
        ("data", "text"),
        [
            ("", "Expecting value"),
            ("[" * 100_000, ""),
            ("[]", "the file must be an object"),
            ({"syscalls": []}, "defaultAction must be"),
            ({"defaultAction": "SCMP_ACT_NOTIFY", "syscalls": []}, "defaultAction must be"),
            ({"defaultAction": 5, "syscalls": []}, "defaultAction must be"),
            ({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 4096, "syscalls": []}, "from 0 to 4095"),
            ({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": True, "syscalls": []}, "from 0 to 4095"),
            ({"defaultAction": "SCMP_ACT_ERRNO"}, "syscalls must be a list"),
            ({**ERRNO, "syscalls": [{}] * 2001}, "at most 2000"),
            ({**ERRNO, "syscalls": [5]}, "syscalls[0] must be an object"),
            ({**ERRNO, "syscalls": [{"action": "SCMP_ACT_ALLOW"}]}, "syscalls[0] must have names"),
            ({**ERRNO, "syscalls": [{"names": [5], "action": "SCMP_ACT_ALLOW"}]}, "syscalls[0] must have names"),
            ({**ERRNO, "syscalls": [{"names": "read", "action": "SCMP_ACT_ALLOW"}]}, "syscalls[0] must have names"),
            ({**ERRNO, "syscalls": [{"names": ["a"], "action": "SCMP_ACT_TRACE"}]}, "action must be"),
            ({**ERRNO, "listenerPath": "/run/x.sock"}, "listener"),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_what_is_no_profile(self, tmp_path: Path, data: Any, text: str) -> None:
        """The error names the file and the place in it."""
        path = written(tmp_path, data)
        with pytest.raises(ConfigurationError) as found:
            read_profile(path, "x86_64")
        assert str(path) in str(found.value)
        assert text in str(found.value)

    @pytest.mark.parametrize(
        ("changes", "text"),
        [
            ({"args": {}}, None),
            ({"args": "a"}, "args must be a list"),
            ({"args": [{}] * 7}, "at most 6"),
            ({"args": [5]}, "args[0] must be an object"),
            ({"args": [{"index": 6, "op": "SCMP_CMP_EQ"}]}, "index must be"),
            ({"args": [{"index": -1, "op": "SCMP_CMP_EQ"}]}, "index must be"),
            ({"args": [{"index": "0", "op": "SCMP_CMP_EQ"}]}, "must be numbers"),
            ({"args": [{"index": 0, "value": 1 << 64, "op": "SCMP_CMP_EQ"}]}, "at most 64 bits"),
            ({"args": [{"index": 0, "value": 1.5, "op": "SCMP_CMP_EQ"}]}, "must be numbers"),
            ({"args": [{"index": 0, "value": True, "op": "SCMP_CMP_EQ"}]}, "must be numbers"),
            ({"args": [{"index": 0, "value": 1, "op": "="}]}, "op must be one of"),
            ({"args": [{"index": 0, "value": 1}]}, "op must be one of"),
            ({"includes": 5}, "includes must be an object"),
            ({"includes": {"arches": "amd64"}}, "arches must be a list"),
            ({"includes": {"minKernel": "new"}}, "not a version"),
            ({"includes": {"minKernel": 5}}, "not a version"),
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_rules_that_make_no_sense(self, tmp_path: Path, changes: dict[str, Any], text: str | None) -> None:
        """The error says which rule, and what in it."""
        item = {"names": ["read"], "action": "SCMP_ACT_ALLOW", **changes}
        if text is None:
            assert rules(tmp_path, item) == (Rule(("read",), ALLOW),)
            return
        with pytest.raises(ConfigurationError) as found:
            rules(tmp_path, item)
        assert text in str(found.value)

    def test_files_that_cannot_be_read(self, tmp_path: Path) -> None:
        """One that is missing, a directory, one with a wrong name, and one that is far too large."""
        large = tmp_path / "large.json"
        large.write_text(" " * ((1 << 20) + 1))
        for path, text in (
            (tmp_path / "none", "cannot be read"),
            (tmp_path, "cannot be read"),
            (Path("a\0b"), "cannot be read"),
            (large, "more than 1048576 bytes"),
        ):
            with pytest.raises(ConfigurationError, match=text):
                read_profile(path)
