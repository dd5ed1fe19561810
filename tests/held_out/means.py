"""What attacks have at hand: system calls by number, in all three ways that a processor makes them."""

import errno
import os
import platform

try:
    import ctypes
    import mmap

    LIBC = ctypes.CDLL(None, use_errno=True)
except (ImportError, OSError, TypeError):  # where no native code can be called, each attack that needs some fails
    ctypes = mmap = LIBC = None
MACHINE = platform.machine()
X32 = 0x40000000


def syscall(number, *words):
    """Make a call and return its result, or minus the number of its error."""
    function = LIBC.syscall
    function.restype = ctypes.c_long
    result = function(
        ctypes.c_long(number), *(word if isinstance(word, ctypes._Pointer) else ctypes.c_long(word) for word in words)
    )
    return result if result >= 0 else -ctypes.get_errno()


def address(thing):
    """Return where an object of ctypes is."""
    return ctypes.addressof(thing)


def old_call(number, *words):
    """Make a call of 32-bit programs, which a filter for 64 bits may not know, by `int 0x80`."""
    values = [*words, 0, 0, 0, 0, 0][:5]
    code = b"\x53"  # push rbx
    for register, value in zip((b"\xbb", b"\xb9", b"\xba", b"\xbe", b"\xbf"), values, strict=True):
        code += register + (value & 0xFFFFFFFF).to_bytes(4, "little")
    code += b"\xb8" + number.to_bytes(4, "little") + b"\xcd\x80\x5b\x48\x98\xc3"  # int 0x80; pop rbx; cdqe; ret
    place = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    place.write(code)
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(place)))
    return function()


def name_of(result):
    """Say what a call has given."""
    return "it was done" if result >= 0 else errno.errorcode.get(-result, str(result))


def got(what, result):
    """Object to a call that was done; its descriptor is closed."""
    if result < 0:
        return ""
    if result > 2:
        try:
            os.close(result)
        except OSError:
            pass
    return f"{what}: {name_of(result)}"


def by_number(names):
    """Return the number of a call on this machine; where it has none there is nothing to try."""
    return names.get(MACHINE, 0)


def apart(*attempts):
    """Return what the first of *attempts* got out, each tried in a process of its own, which may be killed for it."""
    for attempt in attempts:
        ours, theirs = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(theirs, attempt().encode())
            finally:
                os._exit(0)
        os.close(theirs)
        with open(ours, "rb") as answer:
            said = answer.read().decode()
        os.waitpid(child, 0)
        if said:
            return said
    return ""
