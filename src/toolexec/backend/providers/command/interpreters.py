"""Programs that run an argument as code, or as another program, and where in their arguments it stands.

`INTERPRETERS` and `LAUNCHERS` are the only list of them. A program that is neither is taken to read its arguments as
data, whatever its name is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Operand: TypeAlias = Literal["script", "code", "argument"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """How a program takes code.

    `code` are the letters of options whose value is code, `names` whole options of that kind. `values` and
    `value_names` take another value, `tails` are letters that take the rest of their element, and `files` those that
    name a file with the code. `operand` is what the first operand is: a file with the code, the code, or neither.
    """

    instead: str
    """How to pass the arguments, for the message of an error."""
    code: str = ""
    names: tuple[str, ...] = ()
    values: str = ""
    value_names: tuple[str, ...] = ()
    tails: str = ""
    files: str = ""
    operand: Operand = "script"
    is_flag: bool = False
    """Whether `code` has no value: it says that the first operand is code."""
    ends: bool = False
    """Whether all that follows the code of an option is data."""
    joins: bool = False
    """Whether the operands after the code are code, too."""
    permutes: bool = False
    """Whether options may follow operands."""
    skipped: int = 0
    """How many operands stand before the code."""
    stdin: str = ""
    """Letters of options by which it reads the code from stdin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How a program names another one that it runs: after its options and *skipped* operands."""

    values: str = ""
    value_names: tuple[str, ...] = ()
    skipped: int = 0
    assigns: bool = False
    """Whether `NAME=VALUE` may stand before the program."""


_SHELL: Final = Interpreter(
    code="c", values="oO", is_flag=True, stdin="s", instead="give it the arguments as $1, $2, ... after it"
)
_AWK: Final = Interpreter(
    code="e",
    names=("--source",),
    values="Fvi",
    value_names=("--assign", "--field-separator", "--include"),
    files="fE",
    operand="code",
    instead='give it each argument as a variable: "-v", "NAME={name}"',
)
_SED: Final = Interpreter(
    code="e",
    names=("--expression",),
    values="l",
    value_names=("--line-length",),
    tails="i",
    files="f",
    operand="code",
    permutes=True,
    instead='give the arguments to a program that has variables, such as awk: "-v", "NAME={name}"',
)
_NODE: Final = Interpreter(
    code="ep",
    names=("--eval", "--print", "-pe"),
    values="rC",
    value_names=("--require", "--import", "--conditions", "--env-file"),
    instead="give it the arguments after the code and --, as process.argv",
)
_LUA: Final = Interpreter(code="e", values="l", instead="give it the arguments to a script, as arg")
_PYTHON: Final = Interpreter(
    code="c", values="WXQ", files="m", ends=True, instead="give it the arguments after the code, as sys.argv[1:]"
)
_R: Final = Interpreter(code="e", instead="give it the arguments after the code and --args, as commandArgs(TRUE)")
_POWERSHELL: Final = Interpreter(
    names=("-c", "-C", "-Command", "-command", "-e", "-EncodedCommand", "-ec"),
    joins=True,
    instead="give the arguments to a script: -File SCRIPT {name}",
)
_REMOTE: Final = "give the arguments to it in stdin"

INTERPRETERS: Final[Mapping[str, Interpreter]] = {
    **dict.fromkeys(("ash", "bash", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "csh", "zsh"), _SHELL),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("python", "pypy"), _PYTHON),
    **dict.fromkeys(("node", "nodejs", "bun"), _NODE),
    **dict.fromkeys(("lua", "luajit"), _LUA),
    **dict.fromkeys(("R", "Rscript"), _R),
    **dict.fromkeys(("pwsh", "powershell"), _POWERSHELL),
    "perl": Interpreter(
        code="eE", values="I", tails="iFMmxDV", instead="give it the arguments after the code and --, as @ARGV"
    ),
    "ruby": Interpreter(
        code="e", values="ICrE", tails="iFKxTW", instead="give it the arguments after the code and --, as ARGV"
    ),
    "php": Interpreter(
        code="rBRE",
        names=("--run", "--process-begin", "--process-code", "--process-end"),
        values="dczt",
        files="fF",
        instead="give it the arguments after the code and --, as $argv",
    ),
    "julia": Interpreter(
        code="eE", names=("--eval", "--print"), values="LpJ", instead="give it the arguments after the code, as ARGS"
    ),
    "su": Interpreter(
        code="c", names=("--command", "--session-command"), values="sgGwT", operand="argument", permutes=True,
        instead=_REMOTE,
    ),
    "script": Interpreter(
        code="c", names=("--command",), values="EITBOomt", operand="argument", permutes=True, instead=_REMOTE
    ),
    "watch": Interpreter(values="nq", operand="code", joins=True, instead="give it a script without arguments"),
    "parallel": Interpreter(values="jSaNnLI", operand="code", joins=True, instead=_REMOTE),
    "ssh": Interpreter(
        values="BbcDEeFIiJLlmOoPpQRSWw", operand="code", joins=True, skipped=1,
        instead="give the arguments to it in stdin, since the shell at the other end reads the others as code",
    ),
}  # fmt: skip
"""Name of a program, without a version → how it takes code."""

LAUNCHERS: Final[Mapping[str, Launcher]] = {
    "env": Launcher(values="uCS", value_names=("--unset", "--chdir", "--split-string"), assigns=True),
    "xargs": Launcher(
        values="aEIdLnPs", value_names=("--arg-file", "--delimiter", "--max-args", "--max-procs", "--replace")
    ),
    "nice": Launcher(values="n", value_names=("--adjustment",)),
    "ionice": Launcher(values="cnpPu", value_names=("--class", "--classdata")),
    "timeout": Launcher(values="ks", value_names=("--kill-after", "--signal"), skipped=1),
    "stdbuf": Launcher(values="ioe", value_names=("--input", "--output", "--error")),
    "time": Launcher(values="fo", value_names=("--format", "--output")),
    "sudo": Launcher(values="ugCDhpRTrtU", value_names=("--user", "--group", "--chdir"), assigns=True),
    "doas": Launcher(values="uC"),
    "flock": Launcher(values="wE", value_names=("--timeout", "--conflict-exit-code"), skipped=1),
    "chroot": Launcher(skipped=1),
    "taskset": Launcher(skipped=1),
    **dict.fromkeys(("busybox", "nohup", "setsid", "toybox"), Launcher()),
}
"""Name of a program → where it names the one that it runs. `find` does so after `-exec` and its like."""
