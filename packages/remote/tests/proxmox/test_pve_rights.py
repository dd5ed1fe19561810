"""The access control that the Proxmox VE of the tests has: that of libpve-access-control, rule by rule."""

from __future__ import annotations

import pytest
from packages.remote.tests.pve.pveum import PveumError, pveum
from packages.remote.tests.pve.rights import Denied, Rights

USER, TOKEN = "ann@pve", "ann@pve!t"
BASE = (
    "pveum user add ann@pve",
    "pveum user token add ann@pve t",
    "pveum role add Look --privs VM.Audit",
    "pveum role add Run --privs 'VM.Audit,VM.PowerMgmt'",
)


def rights(*commands: str) -> Rights:
    """Return the rights that these commands set up, after a user, a token and two roles."""
    made = Rights()
    for command in (*BASE, *commands):
        pveum(made, command)
    return made


@pytest.mark.parametrize(
    ("commands", "user", "token"),
    [
        (["acl modify /vms/101 --tokens ann@pve!t --roles Run"], False, False),
        (["acl modify /vms/101 --users ann@pve --roles Run"], True, False),
        (["acl modify /vms/101 --users ann@pve --tokens ann@pve!t --roles Run"], True, True),
        (["acl modify /vms --users ann@pve --roles Run", "acl modify / --tokens ann@pve!t --roles Run"], True, True),
        (
            ["acl modify /vms --users ann@pve --roles Look", "acl modify / --tokens ann@pve!t --roles Run"],
            False,
            False,
        ),
        (["user token modify ann@pve t --privsep 0", "acl modify /vms/101 --users ann@pve --roles Run"], True, True),
        (
            ["user token modify ann@pve t --privsep 0", "acl modify /vms/101 --tokens ann@pve!t --roles Run"],
            False,
            False,
        ),
        (["acl modify /vms --users ann@pve --tokens ann@pve!t --roles Run --propagate 0"], False, False),
        (["acl modify /vms/101 --users ann@pve --tokens ann@pve!t --roles Run --propagate 0"], True, True),
        (
            [
                "acl modify / --users ann@pve --tokens ann@pve!t --roles Run",
                "acl modify /vms/101 --users ann@pve --roles NoAccess",
            ],
            False,
            False,
        ),
        (
            [
                "acl modify / --users ann@pve --tokens ann@pve!t --roles Run",
                "acl modify /vms/101 --tokens ann@pve!t --roles Look",
            ],
            True,
            False,
        ),
        (["group add g", "user modify ann@pve --groups g", "acl modify /vms/101 --groups g --roles Run"], True, False),
        (
            [
                "group add g",
                "user modify ann@pve --groups g",
                "acl modify /vms/101 --groups g --roles Run",
                "acl modify /vms/101 --users ann@pve --roles Look",
            ],
            False,
            False,
        ),
    ],
    ids=[
        "token alone",
        "user alone",
        "both",
        "both from above",
        "less above",
        "not separated",
        "not separated and token alone",
        "does not propagate",
        "does not need to",
        "no access",
        "replaced below",
        "group",
        "user before group",
    ],
)
def test_a_path_gives_what_its_lists_and_those_above_say(commands: list[str], user: bool, token: bool) -> None:
    """A separated token has what its user has too; what is deeper, or nearer to the user, counts alone."""
    made = rights(*(f"pveum {each}" for each in commands))
    assert made.has(USER, "/vms/101", "VM.PowerMgmt") is user
    assert made.has(TOKEN, "/vms/101", "VM.PowerMgmt") is token
    assert not made.has(USER, "/vms/102", "VM.Clone")


def test_members_have_the_rights_on_their_pool() -> None:
    """Rights on a pool come on top of their own, and end with the membership; NoAccess ends all, on either path."""
    both = "--users ann@pve --tokens ann@pve!t --roles"
    made = rights(
        "pveum pool add p",
        "pveum pool modify p --vms 101,102 --storage fast",
        f"pveum acl modify /pool/p {both} Run --propagate 0",
        f"pveum acl modify /vms/101 {both} PVETemplateUser",
    )
    assert made.privileges(TOKEN, "/vms/101").keys() == {"VM.Audit", "VM.PowerMgmt", "VM.Clone"}
    assert made.has(TOKEN, "/vms/102", "VM.PowerMgmt")
    assert made.has(TOKEN, "/storage/fast", "VM.Audit")
    assert not made.has(TOKEN, "/vms/103", "VM.PowerMgmt")
    made.forget(101)
    assert not made.privileges(TOKEN, "/vms/101")
    made.join(103, "p")
    assert made.has(TOKEN, "/vms/103", "VM.PowerMgmt")
    pveum(made, "pveum acl modify /vms/103 --users ann@pve --roles NoAccess")
    assert not made.privileges(TOKEN, "/vms/103")
    pveum(made, "pveum acl modify /pool/p --tokens ann@pve!t --roles NoAccess")
    assert not made.privileges(TOKEN, "/vms/102")
    assert made.has(USER, "/vms/102", "VM.PowerMgmt")


def test_root_has_all_and_strangers_nothing() -> None:
    """A token that is not there has nothing, even where its user has."""
    made = rights("pveum acl modify / --users ann@pve --roles Administrator")
    assert made.has("root@pam", "/anything", "Permissions.Modify")
    assert made.has(USER, "/storage/fast", "Datastore.AllocateSpace")
    assert not made.privileges("ann@pve!other", "/")
    assert not made.privileges("bob@pve", "/")


def test_refusals_name_the_path_and_the_privilege() -> None:
    """All alternatives are named where one is enough."""
    made = rights()
    with pytest.raises(Denied, match=r"^Permission check failed \(/vms/101, VM\.Audit\)$"):
        made.check(TOKEN, "/vms/101", "VM.Audit")
    with pytest.raises(Denied, match=r"\(/vms/101, VM\.Snapshot\|VM\.Snapshot\.Rollback\)$"):
        made.check_any(TOKEN, "/vms/101", "VM.Snapshot", "VM.Snapshot.Rollback")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("acl modify /vm/101 --users ann@pve --roles Run", "invalid ACL path"),
        ("acl modify /vms/101 --users ann@pve --roles Walk", "role 'Walk' does not exist"),
        ("acl modify /vms/101 --users bob@pve --roles Run", "no such user"),
        ("acl modify /vms/101 --tokens ann@pve!other --roles Run", "token 'ann@pve!other' does not exist"),
        ("acl modify /vms/101 --roles Run", "is required"),
        ("acl modify /vms/101 --user ann@pve --roles Run", "Unknown option: user"),
        ("role add PVERun --privs VM.Audit", "PVE"),
        ("role add Run --privs VM.Audit", "already exists"),
        ("role add Other --privs VM.Walk", "invalid privilege 'VM.Walk'"),
        ("user token add ann@pve t", "already exists"),
        ("pool modify p --vms 101", "pool 'p' does not exist"),
        ("user grant ann@pve", "unknown command"),
        ("user add", "wrong number of arguments"),
    ],
)
def test_a_wrong_command_is_refused(command: str, message: str) -> None:
    """The interpreter takes what `pveum` takes, and nothing else."""
    with pytest.raises(PveumError, match=message):
        rights(f"pveum {command}")
