"""Start a program with secret arguments that other users cannot list.

``python secret_arguments.py PROGRAM ARGUMENT...`` replaces itself by the program. For each argument ``@NAME``
the program gets the value of the environment variable ``NAME``, while ``ps`` shows ``@NAME``: Linux shows the
memory of the original arguments, and only the pointers to them change, before the program's first
instruction. A process's environment is readable by its user only. If the pointers cannot be changed, the
program gets ``@NAME``.

Triton takes its key from its arguments alone. The compose stack runs this file in Triton's image, so it
imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

_MARK = "@"

PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE = 7, 17, 0x4206
_PTRACE_O_TRACEEXEC = 1 << 4
_EXECUTED = signal.SIGTRAP | 4 << 8
"""Signal and event of a process that stops before a new program's first instruction."""

_PR_SET_PTRACER = 0x59616D61
_WALL = 0x40000000

_START_OF_STACK = 28
"""Number of the field of ``/proc/PID/stat``, counted from 1."""

_WORD = 8
"""Bytes of a pointer: 64-bit Linux."""


def execute(command: list[str]) -> None:
    """Replace this process by ``command``, whose arguments ``@NAME`` are variables of the environment.

    Raises:
        OSError: the program cannot be started, or this process may not be traced.
    """
    if any(word.startswith(_MARK) for word in command):
        _start_tracer()
    os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


def _start_tracer() -> None:
    """Start the process that changes this one's arguments once it is another program."""
    target = os.getpid()
    answers, answer = os.pipe()
    permissions, permission = os.pipe()
    child = os.fork()
    if child == 0:
        if os.fork() == 0:  # the program must not find a child that it did not start
            try:
                _trace(target, permissions, answer)
            except OSError as error:
                sys.stderr.write(f"arguments keep their names: {error}\n")
        os._exit(0)
    os.waitpid(child, 0)
    os.close(answer)
    tracer = int.from_bytes(os.read(answers, _WORD))
    # Fails without Yama, which is what asks for this permission.
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(tracer), 0, 0, 0)
    os.write(permission, b"1")
    if reason := os.read(answers, 200):
        raise OSError(f"arguments cannot be hidden from other users: {reason.decode()}")


def _trace(target: int, permissions: int, answer: int) -> None:
    """Wait until ``target`` executes its program, then have its arguments point to its environment."""
    try:
        os.write(answer, os.getpid().to_bytes(_WORD))
        os.read(permissions, 1)
        _ptrace(PTRACE_SEIZE, target, _PTRACE_O_TRACEEXEC)
    except OSError as error:
        os.write(answer, str(error).encode())
        return
    os.close(answer)
    while (status := os.waitpid(target, _WALL)[1]) >> 8 != _EXECUTED:
        if not os.WIFSTOPPED(status):
            return  # the program could not be started
        _ptrace(PTRACE_CONT, target, os.WSTOPSIG(status))
    _replace(target)
    _ptrace(PTRACE_DETACH, target, 0)


def _replace(target: int) -> None:
    """Change the pointers of a process that has not run yet: its stack is argc, argv, 0, envp, 0."""
    stack = int(Path(f"/proc/{target}/stat").read_text().rpartition(")")[2].split()[_START_OF_STACK - 3])
    with Path(f"/proc/{target}/mem").open("r+b", buffering=0) as memory:
        (count,) = _words(memory.fileno(), stack, 1)
        arguments = stack + _WORD
        pointers = _words(memory.fileno(), arguments, count)
        values = {}
        variable = arguments + (count + 1) * _WORD
        while True:
            (pointer,) = _words(memory.fileno(), variable, 1)
            if not pointer:
                break
            name, _, _ = _text(memory.fileno(), pointer).partition(b"=")
            values[name] = pointer + len(name) + 1
            variable += _WORD
        for number, pointer in enumerate(pointers):
            word = _text(memory.fileno(), pointer)
            if word.startswith(_MARK.encode()) and (value := values.get(word[len(_MARK) :])):
                os.pwrite(memory.fileno(), struct.pack("=Q", value), arguments + number * _WORD)


def _words(file: int, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"={count}Q", os.pread(file, count * _WORD, address))


def _text(file: int, address: int) -> bytes:
    """Return the text at an address, without its closing zero."""
    content = b""
    while b"\0" not in content:
        content += os.pread(file, 256, address + len(content))
    return content.partition(b"\0")[0]


def _ptrace(request: int, target: int, data: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    call.restype = ctypes.c_long
    if call(request, target, None, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    execute(sys.argv[1:])
