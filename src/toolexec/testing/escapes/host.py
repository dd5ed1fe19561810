"""Programs that reach for the host: its network, files and environment."""

from __future__ import annotations

from toolexec.testing.escapes.base import Escape

TRY = """
def attempt(name, action):
    try:
        print(name, "gave", str(action())[:30_000], flush=True)
    except BaseException as error:
        print(name, "raised", type(error).__name__, str(error)[:300], flush=True)
"""
"""The common beginning of many programs: every path is tried, whatever became of the ones before."""

HOST_ESCAPES: tuple[Escape, ...] = (
    Escape(
        name="network_connect",
        tries="to open a TCP connection to a port of the host, by every module that can",
        programs={
            "python": TRY
            + """
import asyncio, http.client, socket, urllib.request
address = ("127.0.0.1", @PORT@)
def plain():
    line = socket.socket()
    line.settimeout(1)
    line.connect(address)
    line.sendall(b"plain\\n")
def low():
    import _socket
    line = _socket.socket()
    line.connect(address)
    line.send(b"low\\n")
attempt("socket", plain)
attempt("_socket", low)
attempt("create_connection", lambda: socket.create_connection(address, 1).sendall(b"x\\n"))
attempt("localhost", lambda: socket.create_connection(("localhost", @PORT@), 1).sendall(b"x\\n"))
attempt("ipv6", lambda: socket.create_connection(("::ffff:127.0.0.1", @PORT@), 1).sendall(b"x\\n"))
attempt("any", lambda: socket.create_connection(("0.0.0.0", @PORT@), 1).sendall(b"x\\n"))
attempt("urllib", lambda: urllib.request.urlopen("http://127.0.0.1:@PORT@/urllib", timeout=1).read())
attempt("http", lambda: http.client.HTTPConnection("127.0.0.1", @PORT@, timeout=1).request("GET", "/http"))
try:
    await asyncio.wait_for(asyncio.open_connection(*address), 1)
except BaseException as error:
    print("asyncio raised", type(error).__name__)
""",
            "javascript": """
const tried = [];
try { const r = await fetch("http://127.0.0.1:@PORT@/fetch"); tried.push(await r.text()); }
catch (e) { tried.push(String(e)); }
try { const net = require("net"); net.connect(@PORT@, "127.0.0.1").write("net\\n"); tried.push("net"); }
catch (e) { tried.push(String(e)); }
try { new XMLHttpRequest().open("GET", "http://127.0.0.1:@PORT@/"); tried.push("xhr"); }
catch (e) { tried.push(String(e)); }
return tried;
""",
            "bash": """
(exec 3<>/dev/tcp/127.0.0.1/@PORT@ && echo hello >&3) 2>&1
command -v curl >/dev/null && curl -s -m 1 http://127.0.0.1:@PORT@/curl 2>&1
true
""",
        },
    ),
    Escape(
        name="network_datagram",
        tries="to send a UDP datagram to the host, as a DNS query would be",
        programs={
            "python": TRY
            + """
import socket
def send(kind):
    line = socket.socket(kind, socket.SOCK_DGRAM)
    query = bytes.fromhex("123401000001000000000000016100000001")
    line.sendto(query, ("127.0.0.1", @PORT@))
attempt("udp", lambda: send(socket.AF_INET))
attempt("udp6", lambda: send(socket.AF_INET6))
""",
            "bash": "echo hello 2>&1 > /dev/udp/127.0.0.1/@PORT@\ntrue",
        },
    ),
    Escape(
        name="network_names",
        tries="to have the host look up names",
        programs={
            "python": TRY
            + """
import asyncio, socket
attempt("getaddrinfo", lambda: socket.getaddrinfo("localhost", 80))
attempt("gethostbyname", lambda: socket.gethostbyname("localhost"))
attempt("gethostname", lambda: socket.gethostname())
attempt("getfqdn", lambda: socket.getfqdn("127.0.0.1"))
attempt("if_nameindex", lambda: socket.if_nameindex())
attempt("resolv.conf", lambda: open("/etc/resolv.conf").read())
""",
        },
    ),
    Escape(
        name="network_listen",
        tries="to open a port and let a connection in",
        programs={
            "python": TRY
            + """
import socket
def listen():
    door = socket.create_server(("127.0.0.1", 0))
    door.settimeout(0.3)
    return door.getsockname(), door.accept()
attempt("listen", listen)
attempt("unix", lambda: socket.socket(socket.AF_UNIX).bind("@DIRECTORY@/door"))
""",
        },
    ),
    Escape(
        name="read_host_files",
        tries="to read a file of the host, straight and by detours",
        programs={
            "python": TRY
            + """
import glob, io, os, pathlib, shutil, linecache, tokenize, runpy, importlib.util, zipfile, sqlite3, fileinput
path = "@CANARY@"
up = "../" * 30 + path.lstrip("/")
for name in (path, up, "/proc/self/root" + path, "/proc/@HOST@/root" + path, "/workspace/" + up, "//" + path):
    attempt("open " + name, lambda: open(name).read())
attempt("os.open", lambda: os.read(os.open(path, os.O_RDONLY), 1000))
attempt("io.FileIO", lambda: io.FileIO(path).read())
attempt("pathlib", lambda: pathlib.Path(path).read_text())
attempt("linecache", lambda: linecache.getlines(path))
attempt("fileinput", lambda: list(fileinput.input([path])))
attempt("copy", lambda: (shutil.copy(path, "taken.txt"), open("taken.txt").read()))
attempt("runpy", lambda: runpy.run_path(path))
attempt("sqlite", lambda: sqlite3.connect("file:" + path + "?mode=ro", uri=True).execute("select 1").fetchall())
attempt("scandir", lambda: [entry.name for entry in os.scandir("@DIRECTORY@")])
attempt("glob", lambda: glob.glob("@DIRECTORY@/*") and open(glob.glob("@DIRECTORY@/*")[0]).read())
attempt("walk", lambda: [open(os.path.join(a, c)).read() for a, b, cs in os.walk("@DIRECTORY@") for c in cs])
for descriptor in range(3, 64):
    try:
        here = os.open(up.lstrip("/"), os.O_RDONLY, dir_fd=descriptor)
        print("by descriptor", descriptor, os.read(here, 1000))
    except BaseException:
        pass
""",
            "javascript": """
const tried = [];
for (const name of ["fs", "node:fs"]) {
  try { tried.push(require(name).readFileSync("@CANARY@", "utf8")); } catch (e) { tried.push(String(e)); }
  try { tried.push((await import(name)).readFileSync("@CANARY@", "utf8")); } catch (e) { tried.push(String(e)); }
}
try { tried.push(std.loadFile("@CANARY@")); } catch (e) { tried.push(String(e)); }
try { tried.push(await import("@CANARY@")); } catch (e) { tried.push(String(e)); }
return tried;
""",
            "bash": "cat '@CANARY@' /proc/@HOST@/root'@CANARY@' 2>&1; echo \"$(<'@CANARY@')\" 2>&1; true",
        },
    ),
    Escape(
        name="look_around",
        tries="to see places of the host: its root, home, accounts and mounts",
        programs={
            "python": TRY
            + """
import os
def seen(path):
    about = os.stat(path)
    inside = sorted(os.listdir(path))[:50] if os.path.isdir(path) else open(path).read()
    return f"<{about.st_dev} {about.st_ino} {about.st_mtime_ns}> {inside}"
hidden = ("@HOME@", "@DIRECTORY@", "/", "/etc/passwd", "/proc", "/sys", "/dev", "/root", "/tmp", "@CANARY@", "~", ".")
for path in hidden:
    attempt(path, lambda: seen(os.path.expanduser(path)))
for path in ("/proc/mounts", "/proc/self/maps", "/proc/1/cmdline", "/proc/self/cgroup", "/run/secrets", "/dev/mem"):
    attempt(path, lambda: open(path).read())
""",
            "bash": "stat -c '<%d %i %Y>' '@HOME@' /etc/passwd '@CANARY@' 2>&1; head -c 300 '@CANARY@' 2>&1; true",
        },
    ),
    Escape(
        name="write_host_files",
        tries="to write, replace, rename and delete files of the host",
        programs={
            "python": TRY
            + """
import os, pathlib, shutil, tempfile
up = "../" * 30 + "@DIRECTORY@".lstrip("/")
attempt("write", lambda: open("@DIRECTORY@/new.txt", "w").write("x"))
attempt("up", lambda: open(up + "/up.txt", "w").write("x"))
attempt("append", lambda: open("@CANARY@", "a").write("x"))
attempt("mkdir", lambda: os.mkdir("@DIRECTORY@/directory"))
attempt("link", lambda: os.link("@CANARY@", "@DIRECTORY@/link"))
attempt("symlink", lambda: os.symlink("@CANARY@", "@DIRECTORY@/symlink"))
attempt("rename", lambda: os.rename("@CANARY@", "@DIRECTORY@/renamed.txt"))
attempt("truncate", lambda: os.truncate("@CANARY@", 0))
attempt("chmod", lambda: os.chmod("@CANARY@", 0))
attempt("remove", lambda: os.remove("@CANARY@"))
attempt("rmtree", lambda: shutil.rmtree("@DIRECTORY@"))
attempt("temp", lambda: tempfile.NamedTemporaryFile(dir="@DIRECTORY@", delete=False).name)
""",
            "bash": "echo x > '@DIRECTORY@/new.txt'; rm -f '@CANARY@'; true",
        },
    ),
    Escape(
        name="links_out_of_the_directory",
        tries="to have the host follow a link when it collects the files of the run",
        programs={
            "python": TRY
            + """
import os
attempt("symlink", lambda: os.symlink("@CANARY@", "out.txt"))
attempt("relative", lambda: os.symlink("../" * 30 + "@CANARY@".lstrip("/"), "relative.txt"))
attempt("directory", lambda: os.symlink("@DIRECTORY@", "directory"))
attempt("link", lambda: os.link("@CANARY@", "hard.txt"))
attempt("loop", lambda: os.symlink("loop", "loop"))
attempt("self", lambda: os.symlink(".", "self"))
attempt("fifo", lambda: os.mkfifo("pipe"))
attempt("device", lambda: os.mknod("device", 0o20666, os.makedev(1, 5)))
attempt("chdir", lambda: (os.chdir("/"), os.chroot(".")))
""",
            "bash": "ln -s '@CANARY@' out.txt; ln -s '@DIRECTORY@' dir; ln '@CANARY@' hard.txt; mkfifo pipe; true",
        },
    ),
    Escape(
        name="environment",
        tries="to read the host's environment variables",
        programs={
            "python": TRY
            + """
import os, posix, sys
attempt("environ", lambda: dict(os.environ))
attempt("getenv", lambda: os.getenv("@VARIABLE@"))
attempt("posix", lambda: posix.environ)
for who in ("self", "1", "@HOST@", "@CHILD@", str(os.getppid() if hasattr(os, "getppid") else 0)):
    attempt("of " + who, lambda: open(f"/proc/{who}/environ").read())
attempt("argv", lambda: (sys.argv, sys.orig_argv, sys.executable, sys.path, sys.prefix))
attempt("expandvars", lambda: os.path.expandvars("$@VARIABLE@"))
attempt("shell", lambda: os.popen("env").read())
""",
            "javascript": """
const tried = [];
try { tried.push(JSON.stringify(process.env)); } catch (e) { tried.push(String(e)); }
try { tried.push(std.getenviron()); } catch (e) { tried.push(String(e)); }
return tried;
""",
            "bash": 'env; echo "$@VARIABLE@"; cat /proc/@HOST@/environ /proc/@CHILD@/environ /proc/$PPID/environ; true',
        },
    ),
)
