"""What of Python's standard library a program in the embedded sandbox can import, and why not the rest.

This file is copied into the component, so it imports nothing of toolexec. A test imports every name in the component.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_NAMES: Final = """
    __future__ _thread abc annotationlib argparse array ast asyncio asyncio.taskgroups asyncio.timeouts atexit
    base64 bdb binascii bisect builtins
    cProfile calendar cmath cmd code codecs codeop collections collections.abc colorsys compileall
    compression compression.gzip compression.zlib concurrent concurrent.futures concurrent.futures.thread
    configparser contextlib contextvars copy copyreg csv
    dataclasses datetime dbm dbm.dumb dbm.sqlite3 decimal difflib dis doctest
    email email.charset email.contentmanager email.encoders email.errors email.generator email.header
    email.headerregistry email.iterators email.message email.mime email.mime.application email.mime.audio
    email.mime.base email.mime.image email.mime.message email.mime.multipart email.mime.nonmultipart email.mime.text
    email.parser email.policy email.utils
    encodings encodings.aliases encodings.idna enum errno
    faulthandler filecmp fileinput fnmatch fractions ftplib functools
    gc genericpath getopt getpass gettext glob graphlib gzip
    hashlib heapq hmac html html.entities html.parser
    http http.client http.cookiejar http.cookies http.server
    imaplib importlib importlib.abc importlib.machinery importlib.metadata importlib.resources
    importlib.resources.abc importlib.util inspect io ipaddress itertools
    json json.decoder json.encoder json.scanner json.tool
    keyword linecache locale logging logging.config logging.handlers
    mailbox marshal math mimetypes modulefinder multiprocessing
    netrc ntpath nturl2path numbers
    opcode operator optparse os os.path
    pathlib pathlib.types pdb pickle pickletools pkgutil platform plistlib poplib posix posixpath pprint profile
    pstats py_compile pyclbr pydoc pyexpat
    queue quopri
    random re reprlib rlcompleter runpy
    sched secrets select selectors shelve shlex shutil signal site smtplib socket socketserver
    sqlite3 sqlite3.dbapi2 stat statistics string string.templatelib stringprep struct subprocess symtable sys sysconfig
    tabnanny tarfile tempfile textwrap threading time timeit token tokenize tomllib trace traceback tracemalloc types
    typing
    unicodedata unittest unittest.async_case unittest.mock urllib urllib.error urllib.parse urllib.request
    urllib.response urllib.robotparser uuid
    warnings wave weakref webbrowser
    wsgiref wsgiref.handlers wsgiref.headers wsgiref.simple_server wsgiref.types wsgiref.util wsgiref.validate
    xml xml.dom xml.dom.expatbuilder xml.dom.minidom xml.dom.pulldom xml.etree xml.etree.ElementInclude
    xml.etree.ElementPath xml.etree.ElementTree xml.etree.cElementTree xml.parsers xml.parsers.expat
    xml.parsers.expat.errors xml.parsers.expat.model xml.sax xml.sax.expatreader xml.sax.handler xml.sax.saxutils
    xml.sax.xmlreader xmlrpc xmlrpc.client xmlrpc.server
    zipapp zipfile zipimport zlib zoneinfo
"""

_READY_NAMES: Final = """
    __future__ _thread abc array ast asyncio asyncio.taskgroups asyncio.timeouts atexit
    base64 binascii bisect builtins calendar cmath codecs collections collections.abc concurrent concurrent.futures
    contextlib contextvars copy copyreg csv dataclasses datetime decimal enum errno fnmatch fractions functools
    gc genericpath glob hashlib heapq hmac importlib importlib.abc importlib.machinery importlib.metadata
    importlib.resources importlib.resources.abc importlib.util inspect io itertools
    json json.decoder json.encoder json.scanner keyword linecache locale logging marshal math numbers
    opcode operator os os.path pathlib pathlib.types pickle pkgutil posix posixpath pprint queue
    random re reprlib secrets select selectors shutil signal socket stat statistics string struct subprocess sys
    tempfile textwrap threading time token tokenize traceback types typing unicodedata urllib urllib.parse uuid
    warnings weakref zlib zoneinfo _colorize _strptime _threading_local
"""

STDLIB: Final[tuple[str, ...]] = tuple(_NAMES.split())
"""Every module that a program can import; it reads no file of the host for that."""

READY: Final[tuple[str, ...]] = tuple(_READY_NAMES.split())
"""Those that are loaded when a program starts, and what they import when they are called; importing the others takes
milliseconds.
"""

_NO_NETWORK: Final = "there is no network"
_NO_PROCESSES: Final = "no process can be started"

LIMITED: Final[Mapping[str, str]] = {
    "_thread": "no thread can be started",
    "concurrent.futures": "a ThreadPoolExecutor works in turn; asyncio.gather runs tool calls at the same time",
    "ftplib": _NO_NETWORK,
    "hashlib": "without scrypt and pbkdf2_hmac, which need OpenSSL",
    "http.client": _NO_NETWORK,
    "http.server": _NO_NETWORK,
    "imaplib": _NO_NETWORK,
    "multiprocessing": _NO_PROCESSES,
    "poplib": _NO_NETWORK,
    "signal": "nobody sends signals",
    "smtplib": _NO_NETWORK,
    "socket": _NO_NETWORK,
    "socketserver": _NO_NETWORK,
    "subprocess": _NO_PROCESSES,
    "tarfile": "without bzip2, LZMA and Zstandard",
    "threading": "no thread can be started; locks and local data work",
    "urllib.request": _NO_NETWORK,
    "webbrowser": "there is no browser",
    "wsgiref.simple_server": _NO_NETWORK,
    "xmlrpc.client": _NO_NETWORK,
    "xmlrpc.server": _NO_NETWORK,
    "zipfile": "stored and deflated members only, without bzip2, LZMA and Zstandard",
}
"""Modules that can be imported, with what of them does not work; sqlite3 is not one: databases in memory work."""

_NO_LIBRARY: Final = "its C library is not part of this Python; zlib and gzip are"
_NO_TERMINAL: Final = "there is no terminal"
_NO_SCREEN: Final = "there is no screen"
_NOT_POSIX: Final = "the sandbox is not a POSIX system"
_NOT_WINDOWS: Final = "it is for Windows only"
_NO_INSTALLING: Final = "packages are added when the sandbox is built, with `toolexec sandbox build --with NAME`"

UNAVAILABLE: Final[Mapping[str, str]] = {
    "antigravity": "there is no browser",
    "asyncio.tools": "it looks into other processes",
    "asyncio.windows_events": _NOT_WINDOWS,
    "asyncio.windows_utils": _NOT_WINDOWS,
    "bz2": _NO_LIBRARY,
    "compression.bz2": _NO_LIBRARY,
    "compression.lzma": _NO_LIBRARY,
    "compression.zstd": _NO_LIBRARY,
    "concurrent.futures.interpreter": "this Python has no subinterpreters",
    "concurrent.futures.process": _NO_PROCESSES,
    "concurrent.interpreters": "this Python has no subinterpreters",
    "ctypes": "native code cannot be called",
    "curses": _NO_TERMINAL,
    "dbm.gnu": "its C library is not part of this Python; dbm.sqlite3 and dbm.dumb are",
    "dbm.ndbm": "its C library is not part of this Python; dbm.sqlite3 and dbm.dumb are",
    "ensurepip": _NO_INSTALLING,
    "fcntl": _NOT_POSIX,
    "grp": _NOT_POSIX,
    "idlelib": _NO_SCREEN,
    "lzma": _NO_LIBRARY,
    "mmap": "files cannot be mapped into memory",
    "msvcrt": _NOT_WINDOWS,
    "multiprocessing.pool": _NO_PROCESSES,
    "multiprocessing.shared_memory": _NO_PROCESSES,
    "nt": _NOT_WINDOWS,
    "pip": _NO_INSTALLING,
    "pty": _NO_TERMINAL,
    "pwd": _NOT_POSIX,
    "pydoc_data": "the long help texts are left out",
    "readline": _NO_TERMINAL,
    "resource": _NOT_POSIX,
    "sre_compile": "deprecated; use re",
    "sre_constants": "deprecated; use re",
    "sre_parse": "deprecated; use re",
    "ssl": _NO_NETWORK,
    "syslog": _NOT_POSIX,
    "termios": _NO_TERMINAL,
    "test": "the tests of Python itself are left out",
    "this": "it prints when it is imported",
    "tkinter": _NO_SCREEN,
    "tty": _NO_TERMINAL,
    "turtle": _NO_SCREEN,
    "turtledemo": _NO_SCREEN,
    "venv": _NO_INSTALLING,
    "winreg": _NOT_WINDOWS,
    "winsound": _NOT_WINDOWS,
}
"""Modules that cannot be imported, with the reason that the ModuleNotFoundError gives."""
