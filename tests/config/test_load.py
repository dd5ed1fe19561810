"""Files, environment and flags, one over the other."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolexec.config.blocks import BLOCKS, KEYS, Key
from toolexec.config.load import load_settings, parse_set
from toolexec.config.loaded import LoadedConfig
from toolexec.config.parts import resilience, sandbox_settings
from toolexec.config.template import toml_value
from toolexec.errors import ConfigurationError
from toolexec.errors.moved import MOVED_SETTINGS
from toolexec.runtime.sandbox_settings import SandboxSettings

HASH = "ab" * 32


def write(name: str, text: str | dict[str, Any]) -> Path:
    path = Path(name)
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def mistakes(*paths: str | Path, **more: Any) -> list[str]:
    """All that is wrong."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings(paths, **more)
    found = caught.value.details["mistakes"]
    assert all(mistake in caught.value.message for mistake in found)
    return found


def other(key: Key, number: int) -> Any:
    """A value of the key that is not its default; there are three of them."""
    if key.path == "policy.rules":
        return [{"effect": "deny", "tools": [f"a:{number}"]}]
    if key.path == "auth.api_keys":
        return [{"id": f"id{number}", "sha256": f"{number}" * 64}]
    if key.path == "auth.jwt.algorithms":
        return [["RS384"], ["ES384"], ["EdDSA"]][number]
    if key.path == "auth.sign_in.scopes":
        return [["openid"], ["openid", "email"], ["openid", "groups"]][number]
    if key.path == "auth.sign_in.domains":
        return [f"x{number}.example.com"]
    if key.path == "secrets.providers":
        return [["env"], ["file"], ["keyring"]][number]
    if key.path == "sandboxes.use":
        return [["wasm"], ["docker", "wasm"], ["gvisor"]][number]
    if key.path == "sandboxes.wasm_workers":
        return [2, "auto", 0][number]
    if key.path == "sandboxes.egress_secrets":
        return [{"placeholder": f"TOKEN_{number}_HERE", "value": f"secretref:env:A{number}", "hosts": ["a.example"]}]
    if key.path == "sandboxes.plugins":
        return [{"kind": f"cell{number}"}]
    if key.path == "runtime_server.keys":
        return [{"id": f"k{number}", "token": f"secretref:env:TOKEN_{number}"}]
    if key.path == "scan.scanners":
        return [["hidden"], ["secrets"], ["instructions", "hidden"]][number]
    if key.path == "record.share":
        return [0.25, 0.5, 0.75][number]
    if key.path == "record.max_bytes":
        return 2000 + number
    if key.path == "runtime_server.profiles":
        return [["standard"], ["hardened"], ["dev", "standard"]][number]
    if key.path == "runtime_server.quotas":
        return [{"tenant": f"t{number}", "running": 1}]
    if key.path == "sandboxes.remote.endpoints":
        return [f"https://x{number}.example.com/v1/execute"]
    if key.path == "sandboxes.remote.networks":
        return [f"10.{number}.0.0/16"]
    if key.path == "sandboxes.remote.isolation":
        return ["container", "gvisor", "vm"][number]
    if key.block == "sandboxes.proxmox" and (value := proxmox_sample(key.name, number)) is not None:
        return value
    if key.path == "cache.rules":
        return [{"tools": f"t{number}:*", "ttl": 60}]
    if key.path == "resilience.fallbacks":
        return [{"tools": f"t{number}:*", "to": ["u:*"]}]
    if key.path in ("auth.jwt.jwks_url", "auth.resource_url"):
        return f"https://x{number}.example.com/mcp"
    if key.path == "auth.authorization_servers":
        return [f"https://x{number}.example.com"]
    if key.path == "http.allowed_origins":
        return [f"https://x{number}.example.com"]
    if key.path == "http.trusted_proxies":
        return [f"10.0.0.{number}"]
    if key.path == "server.path":
        return f"/p{number}"
    names = {
        "file": f"/n{number}",
        "list of files": [f"/n{number}"],
        "text": f"t{number}",
        "list of strings": [f"t{number}"],
    }
    if key.path == "sources.python":
        return [f"module_{number}"]
    if key.path == "sources.include":
        return [str(write(f"inc{number}.json", {"mcpServers": {}}).resolve())]
    if key.path == "sources.skills":
        Path(f"skills{number}").mkdir(exist_ok=True)
        return [str(Path(f"skills{number}").resolve())]
    if key.kind.name in names:
        return names[key.kind.name]
    if " / " in key.kind.name:
        words = [word for word in key.kind.name.split(" / ") if word != key.default]
        return words[min(number, len(words) - 1)]
    if isinstance(key.default, bool):
        return key.default if number == 1 else not key.default
    large = key.path.startswith("results") or key.path == "cache.max_bytes"
    return 2000 + number if large else 11 + number


PROXMOX = {
    "url": "https://x{}.example.com:8006",
    "token_id": "agents@pve!t{}",
    "username": "agents{}@pve",
    "fingerprint": "{:02x}" * 32,
    "node": "pve{}",
    "rollback": "clean{}",
    "isolation": "container",
}


def proxmox_sample(name: str, number: int) -> Any:
    if name in ("vmid", "template"):
        return 100 + number
    if name == "isolation":
        return ["container", "gvisor", "vm"][number]
    if name == "fingerprint":
        return f"{number:02x}" * 32
    if name == "runtime":
        return f"https://{{ip}}:800{number}/v1/execute"
    return PROXMOX[name].format(number) if name in PROXMOX else None


def proxmox_needs(name: str) -> dict[str, Any]:
    user = {"username": "a@pve", "password": "p"} if name in ("username", "password") else {}
    token = {} if user else {"token_id": "a@pve!t", "token_secret": "s"}
    container: dict[str, Any] = {"template": 900} if name == "template" else {"vmid": 100}
    more = {"storage": {"full_clones": True}, "warm": {"max_clones": 50}}.get(name, {})
    given = {"url": "https://x.example.com:8006", "node": "pve", "key_id": "t", "runtime_token": "t"}
    return {**given, **user, **token, **container, **more}


def needed(key: Key) -> dict[str, Any]:
    """Return the settings that the key depends on."""
    if key.block == "auth.jwt" and key.name != "jwks_file":
        more = {"auth.jwt.issuer": "me", "auth.jwt.audience": "you", "auth.jwt.jwks_file": "/keys"}
        if key.name == "jwks_url":
            more["auth.jwt.jwks_file"] = ""
        return more
    if key.path == "auth.jwt.jwks_file":
        return {"auth.jwt.issuer": "me", "auth.jwt.audience": "you"}
    if key.block == "auth.sign_in":
        issuer = {"auth.jwt.issuer": "https://x.example.com", "auth.jwt.jwks_file": "/keys"}
        return {**issuer, "auth.jwt.audience": "you", "auth.sign_in.client_id": "me"}
    if key.path == "auth.authorization_servers":
        return {
            "auth.jwt.issuer": "me",
            "auth.jwt.jwks_file": "/keys",
            "auth.resource_url": "https://x.example.com/mcp",
        }
    if key.path == "http.tls_key":
        return {"http.tls_cert": "/c"}
    if key.block == "sandboxes.remote":
        names = ("endpoints", "key_id", "token", *(("client_cert",) if key.name == "client_key" else ()))
        return {f"sandboxes.remote.{name}": ["https://x.example.com"] if name == "endpoints" else "t" for name in names}
    if key.block == "sandboxes.proxmox":
        return {f"sandboxes.proxmox.{name}": value for name, value in proxmox_needs(key.name).items()}
    if key.path == "sandboxes.egress_secrets":
        return {"sandboxes.egress": ["a.example"]}
    return {}


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def toml(settings: dict[str, Any]) -> str:
    lines: list[str] = []
    for path, value in settings.items():
        block, _, name = path.rpartition(".")
        lines.append(f"[{block}]\n{name} = {toml_value(value)}")
    blocks: dict[str, list[str]] = {}
    for line in lines:
        head, _, rest = line.partition("\n")
        blocks.setdefault(head, []).append(rest)
    return "\n".join("\n".join([head, *rest]) for head, rest in blocks.items())


@pytest.mark.full
@pytest.mark.parametrize("path", KEYS)
def test_every_key_can_be_set_in_every_layer(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults lie below files, files below the environment, that below flags; the origin names each."""
    kinds = [f"cell{number}" for number in range(3)]
    monkeypatch.setattr("toolexec.runtime.sandbox_settings.installed_kinds", lambda: kinds)  # for sandboxes.plugins
    key = KEYS[path]
    more = needed(key)
    values = [other(key, number) for number in range(3)]
    read = [key.read(value) for value in values]
    file = write("a.toml", toml({path: values[0]} | {name: value for name, value in more.items() if name != path}))
    variables = {key.variable: as_text(values[1])}
    flags = {path: as_text(values[2])}

    untouched = load_settings([write("none.json", {"mcpServers": {}})])
    assert untouched.settings.get(path) == key.default
    assert untouched.origins[path] == "default"
    by_file = load_settings([file])
    assert by_file.settings.get(path) == read[0]
    assert by_file.origins[path].startswith("a.toml:")
    by_variable = load_settings([file], environment=variables)
    assert by_variable.settings.get(path) == read[1]
    assert by_variable.origins[path] == key.variable
    by_flag = load_settings([file], environment=variables, flags=flags)
    assert by_flag.settings.get(path) == read[2]
    assert by_flag.origins[path] == f"--set {path}"


def test_a_flag_with_the_default_still_counts() -> None:
    """Asking for stdio against a file that says http gives stdio."""
    file = write("a.toml", '[server]\ntransport = "http"\nport = 1')
    loaded = load_settings(
        [file], flags={"server.transport": "stdio", "server.port": 8080}, flag_names={"server.port": "--port"}
    )
    assert (loaded.settings.server.transport, loaded.settings.server.port) == ("stdio", 8080)
    assert loaded.origins["server.port"] == "--port"


def test_a_later_file_counts_more() -> None:
    """Whatever their formats; what it does not say stays."""
    files = [
        write("a.toml", '[server]\nport = 1\nname = "a"'),
        write("b.yaml", "server:\n  port: 2\n"),
        write("c.json", {"server": {"expose": "code"}}),
    ]
    settings = load_settings(files).settings
    assert (settings.server.port, settings.server.name, settings.server.expose) == (2, "a", "code")


BAD = """\
[server]
transport = "htp"
port = "x"
[limits]
max_tol_calls = 5
call_timeout = -1
[auth]
api_keys = [{ id = "a", sha256 = "hush-hush" }, { id = "b", sha265 = "hush" }]
[auth.jwt]
isuer = "x"
[[policy.rules]]
effect = "deny"
[[policy.rules]]
effect = "dny"
[mcpServers.git]
command = "git"
agrs = []
[mcpServers.both]
command = "x"
url = "http://x"
[mcpServers.text]
command = 5
[limts]
[sources]
include = ["gone.json", "app.py"]
python = ["gone.py"]
"""


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TOOLEXEC_MCPSERVERS__GIT", '{"command": "git", "command": "rm"}'),
        ("TOOLEXEC_TOOLSETS__OPS", '{"tools": ["a:*"], "tools": ["b:*"]}'),
        ("TOOLEXEC_ENDPOINTS__OPS", '{"path": "/a", "path": "/b"}'),
        ("TOOLEXEC_PROVIDERS__WEB", '{"kind": "http", "auth": {"token": 1, "token": 2}}'),
        ("TOOLEXEC_POLICY__RULES", '[{"effect": "deny", "effect": "allow"}]'),
    ],
)
def test_a_variable_with_a_key_twice_is_a_mistake(variable: str, value: str) -> None:
    """A key that a variable has twice is refused, as in a file: none of the two values is taken in silence."""
    [mistake] = mistakes(environment={variable: value})
    assert variable in mistake
    assert "is there twice" in mistake


def test_all_mistakes_are_told_at_once_with_their_lines() -> None:
    """Each with the nearest key, or with what is expected; secrets are not quoted."""
    found = mistakes(write("a.toml", BAD), environment={"TOOLEXEC_SERVER__PROT": "1", "TOOLEXEC_HTTP__TLS_CERT": ""})
    text = "\n".join(found)
    assert "hush" not in text
    for expected in [
        'a.toml, line 2: server.transport must be one of stdio, http, sse, not "htp"',
        'a.toml, line 3: server.port must be an integer, 0 to 65535, not "x"',
        "a.toml, line 5: unknown key limits.max_tol_calls; did you mean max_tool_calls?",
        "a.toml, line 6: limits.call_timeout must be a time in seconds",
        "a.toml, line 8: auth.api_keys[0]: sha256 of the API key 'a'",
        "a.toml, line 8: auth.api_keys[1]: unknown key sha265 of an API key; did you mean sha256?",
        "a.toml, line 10: unknown key auth.jwt.isuer; did you mean issuer?",
        "a.toml, line 13: policy.rules[1]: ",
        "a.toml, line 17: server 'git' has the unknown key 'agrs'; did you mean 'args'?",
        "a.toml, line 18: server 'both': MCP server both: give either a command or a url",
        "a.toml, line 21: server 'text': command must be of type str",
        "a.toml, line 23: unknown key limts; did you mean limits?",
        "a.toml, line 25: cannot read gone.json",
        "a.toml, line 25: app.py is a Python file; name it in sources.python",
        "a.toml, line 26: cannot read gone.py",
        "unknown variable TOOLEXEC_SERVER__PROT; did you mean TOOLEXEC_SERVER__PORT?",
    ]:
        assert any(expected in mistake for mistake in found), expected
    assert len(found) == 16


def test_one_mistake_is_the_whole_message() -> None:
    """No heading for one line."""
    with pytest.raises(
        ConfigurationError, match=r"^a\.toml, line 2: unknown key limits\.max_tol_calls; did you mean max_tool_calls\?$"
    ):
        load_settings([write("a.toml", "[limits]\nmax_tol_calls = 1")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("port = 1", "line 1: unknown key port; it belongs into [server]"),
        ("[limits]\nprofile = 'dev'", "line 2: unknown key limits.profile; it belongs into [code]"),
        ("[limits]\nxyz = 1", "line 2: unknown key limits.xyz; there are call_timeout"),
        ("[qqq]", "line 1: unknown key qqq; there are sources, server"),
        ("[backends.local]\na = 1", "line 1: unknown key backends; there are sources, server"),
        ("server = 1", "line 1: server must be a table"),
        ("[auth]\njwt = 1", "line 2: auth.jwt must be a table"),
        ("mcpServers = 1", "line 1: mcpServers must be a table of servers"),
        ("[mcpServers]\na = 1", "line 2: server 'a' must be an object"),
        ("[http]\ntls_key = 'x'", "line 2: [http] and [server]: tls_key needs tls_cert"),
        ("[auth.jwt]\nissuer = 'x'", "line 2: [auth] and [auth.jwt]: jwt needs either jwks_url or jwks_file"),
        ("[auth]\napi_keys = [{ id = 'a' }]", "an API key needs sha256"),
        (f"[auth]\napi_keys = [{{ id = 'a', sha256 = '{HASH}', roles = 'x' }}]", "roles of an API key must be a list"),
        (
            f"[auth]\napi_keys = [{{ id = 'a', sha256 = '{HASH}', expires = 5 }}]",
            "expires of an API key must be a text",
        ),
        ("[limits]\nrate = 'fast'", "line 2: limits.rate must be calls in one second"),
        ("a = \nb = 1", "a.toml is not TOML, line 1:"),
    ],
)
def test_a_mistake_says_what_to_do(text: str, message: str) -> None:
    """The message names the fix, also for keys in the wrong table."""
    (found,) = mistakes(write("a.toml", text))
    assert message in found


def test_a_yaml_file_that_is_no_table_is_refused() -> None:
    """Refuses a YAML file that is not a table, and a duplicate key."""
    assert mistakes(write("a.yaml", "- 1")) == ["a.yaml: it must be a table of settings"]
    assert mistakes(write("a.yaml", "server:\n  port: 1\n  port: 2\n")) == [
        "a.yaml, line 3: the key port is there twice"
    ]


@pytest.mark.full
def test_files_that_cannot_be_read_are_told() -> None:
    """Missing, a directory, too large, no text, too deep."""
    Path("directory.toml").mkdir()
    Path("large.json").write_bytes(b"x" * (4 * 1024**2 + 1))
    Path("latin.toml").write_bytes(b"# \n# caf\xe9\n")
    write("deep.toml", "a = " + "[" * 50_000)
    write("deep.yaml", "[" * 50_000)
    names = ["gone.toml", "directory.toml", "large.json", "latin.toml", "deep.toml", "deep.yaml"]
    found = mistakes(*names)
    reasons = ["No such file", "s a directory", "more than 4 MiB", "line 2: it is not UTF-8", "deep", "deep"]
    assert len(found) == len(names)
    for name, reason, mistake in zip(names, reasons, found, strict=True):
        assert name in mistake
        assert reason in mistake


def test_many_mistakes_are_cut() -> None:
    """A thousand lines are cut."""
    with pytest.raises(ConfigurationError) as caught:
        load_settings([write("a.toml", "".join(f"[wrong{n}]\n" for n in range(80)))])
    assert caught.value.details["count"] == 80
    assert len(caught.value.details["mistakes"]) == 50
    assert caught.value.message.endswith("... and 30 more")


def test_variables_are_checked() -> None:
    """Unknown ones are refused, those without two underlines are none of ours, lists are JSON."""
    none = write("none.json", {"mcpServers": {}})
    fine = {"TOOLEXEC_CONFIG": "x", "TOOLEXEC_NPM": "y", "OTHER__X": "z", "TOOLEXEC_HTTP__ALLOWED_HOSTS": '["a"]'}
    assert load_settings([none], environment=fine).settings.http.allowed_hosts == ("a",)
    bad = {
        "TOOLEXEC_HTTP__ALLOWED_HOSTS": "a",
        "TOOLEXEC_LIMITS__MAX_TOL_CALLS": "1",
        "TOOLEXEC_CODE__ENABLED": "perhaps",
    }
    found = mistakes(none, environment=bad)
    assert found[0] == 'TOOLEXEC_CODE__ENABLED: code.enabled must be true or false, not "perhaps"'
    assert found[1] == "TOOLEXEC_HTTP__ALLOWED_HOSTS: http.allowed_hosts must be a list of strings, written as JSON"
    assert found[2] == "unknown variable TOOLEXEC_LIMITS__MAX_TOL_CALLS; did you mean TOOLEXEC_LIMITS__MAX_TOOL_CALLS?"


@pytest.mark.parametrize("path", MOVED_SETTINGS)
def test_old_keys_are_read_with_a_hint_at_the_new_one(path: str) -> None:
    """Files, variables and flags may have them; Python says where each of them is."""
    moved, name = MOVED_SETTINGS[path], path.removeprefix("sandboxes.")
    value = {str: "x", bool: True, list: [{"key": "a"}], dict: {"disk": "fast"}}[moved.fits]
    text = value if isinstance(value, str) else json.dumps(value)
    variable = f"TOOLEXEC_SANDBOXES__{name.upper()}"
    none, file = write("none.toml", ""), write("old.toml", f"[sandboxes]\n{name} = {toml_value(value)}")
    sources: dict[str, dict[str, Any]] = {
        "old.toml, line 2": {"paths": [file]},
        variable: {"paths": [none], "environment": {variable: text}},
        f"--set {path}": {"paths": [none], "flags": {path: text}},
    }
    for where, source in sources.items():
        loaded = load_settings(**{"environment": {}, **source})
        hint = f'{path} is {moved.name} in the table of sandboxes.plugins with kind = "{moved.kind}" now; move it there'
        assert loaded.hints == (f"{where}: {hint}",)
        assert sandbox_settings(loaded).plugins == {moved.kind: {moved.name: value}}
    assert path not in KEYS
    wrong = write("a.toml", f"[sandboxes]\n{name} = 7")
    assert mistakes(wrong, environment={}) == [f"a.toml, line 2: {path} must be {moved.expects}"]
    with pytest.raises(ConfigurationError) as caught:
        SandboxSettings(**{name: "x"})  # type: ignore[arg-type]
    place = f'plugins={{"{moved.kind}": {{"{moved.name}": ...}}}}'
    assert caught.value.message == f"SandboxSettings has no setting '{name}'; it is now {place}"


def test_the_new_key_counts_where_the_old_one_is_there_as_well() -> None:
    """The table of the kind of sandbox has the last word, name by name."""
    table = 'plugins = [{kind = "kubernetes", namespace = "new"}]'
    file = write("a.toml", f"[sandboxes]\nkube_namespace = 'old'\nkube_context = 'c'\n{table}")
    loaded = load_settings([file], environment={})
    assert sandbox_settings(loaded).plugins == {"kubernetes": {"namespace": "new", "context": "c"}}


def test_flags_are_checked() -> None:
    """With what was typed."""
    none = write("none.json", {"mcpServers": {}})
    found = mistakes(none, flags={"limits.max_tol_calls": "1", "x": "1", "x.y": "2", "server.port": "1e9"})
    assert found[0] == "--set limits.max_tol_calls: unknown key limits.max_tol_calls; did you mean max_tool_calls?"
    assert found[1].startswith("--set x: unknown key x; there are the blocks")
    assert "--set server.port: server.port must be an integer" in found[3]
    assert [(each.path, each.text) for each in parse_set(["a.b=c=d"])] == [("a.b", "c=d")]
    with pytest.raises(ConfigurationError, match="KEY=VALUE"):
        parse_set(["a.b"])


def test_relative_files_count_from_the_directory_of_their_file() -> None:
    """In variables and flags, from the current directory."""
    Path("sub").mkdir()
    file = write("sub/a.toml", '[audit]\npath = "log.jsonl"\n[pinning]\npath = "~/pins.json"')
    loaded = load_settings([file])
    assert loaded.settings.audit.path == "sub/log.jsonl"
    assert loaded.settings.pinning.path == str(Path.home() / "pins.json")
    assert load_settings([file], flags={"audit.path": "x.jsonl"}).settings.audit.path == "x.jsonl"


# -- servers -------------------------------------------------------------------------------------------------------


def names(loaded: LoadedConfig) -> list[str]:
    return [server.name for server in loaded.servers]


def test_servers_come_from_all_files() -> None:
    """Includes files of other programs, with comments, and in VS Code's form."""
    write("vs.json", '{"servers": {"vs": {"type": "http", "url": "http://x/mcp"}}, // mine\n "inputs": []}')
    write("settings.json", {"mcp": {"servers": {"old": {"command": "x"}}}, "editor.fontSize": 3})
    files = [
        write(
            "a.toml", '[sources]\ninclude = ["vs.json", "settings.json"]\n[mcpServers.own]\ncommand = "x"\ncwd = "here"'
        ),
        write("plain.json", {"mcpServers": {"plain": {"command": "x"}}, "globalShortcut": ""}),
    ]
    loaded = load_settings(files)
    assert names(loaded) == ["own", "plain", "vs", "old"]
    assert loaded.server_origins == {
        "own": "a.toml:3",
        "plain": "plain.json:1",
        "vs": "vs.json:1",
        "old": "settings.json:1",
    }
    assert str(loaded.servers[0].cwd) == "here"


def test_two_servers_of_one_name_are_refused() -> None:
    """The message names both places."""
    files = [write("a.toml", '[mcpServers.x]\ncommand = "a"'), write("b.json", {"mcpServers": {"x": {"command": "b"}}})]
    assert mistakes(*files) == ["b.json: a backend named x is there already, from a.toml:1; rename one of them"]


def test_a_variable_can_set_a_server() -> None:
    """In place of the one with its name, or as a new one; anything but a JSON object is refused."""
    file = write("a.toml", '[mcpServers.my-git]\ncommand = "a"')
    variables = {"TOOLEXEC_MCPSERVERS__MY_GIT": '{"command": "b"}', "TOOLEXEC_MCPSERVERS__NEW": '{"command": "c"}'}
    loaded = load_settings([file], environment=variables)
    assert {server.name: server.command for server in loaded.servers} == {"my-git": "b", "new": "c"}
    assert loaded.server_origins["new"] == "TOOLEXEC_MCPSERVERS__NEW"
    for text in ("[]", "x"):
        (found,) = mistakes(file, environment={"TOOLEXEC_MCPSERVERS__NEW": text})
        assert found.startswith("TOOLEXEC_MCPSERVERS__NEW: it must be one server as a JSON object")


def test_files_that_cannot_be_included_are_refused() -> None:
    """Those without servers, and those with settings of toolexec."""
    write("empty.json", {"other": 1})
    write("own.json", {"server": {"port": 1}, "mcpServers": {}})
    found = mistakes(write("a.toml", '[sources]\ninclude = ["empty.json", "own.json"]'))
    assert 'empty.json has no "mcpServers" object' in found[0]
    assert "own.json has settings of toolexec; give it with -c, too" in found[1]


# -- files of other programs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "strict"),
    [
        ("claude.json", {"mcpServers": {}, "numStartups": 3, "auth": "x"}, False),
        ("gemini.json", {"mcpServers": {}, "telemetry": {"enabled": True, "target": "gcp"}}, False),
        ("other.json", {"mcpServers": {}, "server": {"hostname": "x"}}, False),
        ("toolexec.json", {"mcpServers": {}, "globalShortcut": ""}, False),
        ("mine.json", {"mcpServers": {}, "server": {"port": 1}, "limts": {}}, True),
        ("toolexec.json", {"mcpServers": {}, "limts": {}}, True),
        ("toolexec.json", {"telemetry": {"x": 1}}, True),
    ],
)
def test_json_is_strict_when_it_is_for_toolexec(name: str, data: dict[str, Any], strict: bool) -> None:
    """Files of other programs stay valid as they are."""
    path = write(name, data)
    if strict:
        assert "unknown key" in mistakes(path)[0]
    else:
        assert load_settings([path]).origins["server.port"] == "default"


def test_references_are_for_files_of_toolexec() -> None:
    """In other files they may mean something else, unless it is for a server."""
    plain = write("plain.json", {"mcpServers": {"x": {"command": "${HOME}/x"}}})
    own = write("own.toml", '[mcpServers.x]\ncommand = "${HOME}/x"')
    assert load_settings([plain]).servers[0].secrets is None
    assert load_settings([own]).servers[0].secrets is not None
    assert load_settings([plain], serving=True).servers[0].secrets is not None


def test_providers_of_secrets_can_be_forbidden() -> None:
    """A reference to such a one cannot be resolved."""
    file = write(
        "a.toml",
        '[secrets]\nproviders = ["env"]\n[mcpServers.x]\ncommand = "x"\nenv = { A = "secretref:command:echo hi" }',
    )
    (server,) = load_settings([file]).servers
    with pytest.raises(ConfigurationError, match=r"secrets\.providers does not allow"):
        server.resolved()


def test_a_server_that_would_be_open_is_refused_when_it_is_to_serve() -> None:
    """For other commands it does not matter."""
    file = write("a.toml", '[server]\ntransport = "http"\nhost = "0.0.0.0"')
    assert load_settings([file]).settings.server.host == "0.0.0.0"
    (found,) = mistakes(file, serving=True)
    assert "without authentication would let anybody run your tools" in found


def test_the_schema_is_one_piece() -> None:
    """Every key has a block, a help text that is a sentence, a kind, and a variable of its own."""
    assert set(KEYS) == {f"{key.block}.{key.name}" for key in KEYS.values()}
    assert len({key.variable for key in KEYS.values()}) == len(KEYS)
    assert {key.block for key in KEYS.values()} == set(BLOCKS)
    assert all(key.help.endswith((".", "...")) and len(key.help) < 100 for key in KEYS.values())
    assert all(
        key.read(list(key.default) if isinstance(key.default, tuple) else key.default) == key.default
        for key in KEYS.values()
    )


def test_loading_imports_nothing_heavy() -> None:
    """Neither the MCP SDK nor a web server, as long as nothing is served."""
    import subprocess

    file = write("a.toml", '[limits]\ncall_timeout = 5\n[mcpServers.x]\ncommand = "x"')
    code = (
        "import sys; from toolexec.config.load import load_settings; "
        f"load_settings(['{file}']); print(*[m for m in ('mcp', 'starlette', 'yaml', 'jwt', 'uvicorn') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "path", [path for path, key in KEYS.items() if "0:" in key.help and " of " not in key.kind.name]
)
def test_a_setting_whose_help_explains_0_takes_it(path: str) -> None:
    """A file may have the 0 that the help of the setting has a meaning for."""
    block, name = path.rsplit(".", 1)
    assert load_settings([write("zero.toml", f"[{block}]\n{name} = 0\n")]).has(block)


@pytest.mark.parametrize(("name", "part"), [("breaker_failures", "breaker"), ("max_concurrent", "bulkhead")])
def test_0_leaves_a_part_of_resilience_out(name: str, part: str) -> None:
    """A gate has no breaker where a file says that backends are never left alone, and no bulkhead for any number."""
    both = {"breaker", "bulkhead"}
    assert resilience(load_settings([write("all.toml", "[resilience]\nattempts = 2\n")])).keys() >= both
    made = resilience(load_settings([write("zero.toml", f"[resilience]\n{name} = 0\n")]))
    assert made.keys() & both == both - {part}
