"""Standard input, output and error of a command, which may be closed, or lose whoever reads them.

One rule for every command: what nobody reads any more is dropped, the command runs on to its end, and
its exit code is the true one. A full disk is another matter: that is an error of standard output.
"""

import io
import os
import sys
from typing import Any, TextIO


def stand_in_for_lost_ones() -> None:
    """Replace the streams that Python has made; a command calls this first, before it opens a file."""
    if sys.stdin is None:
        sys.stdin = open(_nowhere())  # noqa: SIM115
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(sys.stdout, _Output)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(sys.stderr, _Errors)


class _Output(io.FileIO):
    """Standard output: what is written goes nowhere once nobody reads it."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self._go_nowhere()  # Python writes what is left once more as it ends
            if not isinstance(error, ConnectionError):
                raise OSError(error.errno, error.strerror, "standard output") from None
        return memoryview(data).nbytes

    def _go_nowhere(self) -> None:
        """From here on, and for libraries and processes that write there themselves."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)


class _Errors(_Output):
    """Standard error: that it cannot be written, whyever, could be said to nobody."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def _text(stream: TextIO | None, kind: type[_Output]) -> TextIO:
    if stream is None:
        raw = kind(_nowhere(), "w")
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="replace")
    assert isinstance(stream, io.TextIOWrapper)
    return io.TextIOWrapper(
        io.BufferedWriter(kind(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors="replace",  # a terminal that lacks a letter is no reason to stop
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def _nowhere() -> int:
    """In the place of a closed stream, whose number it takes if that is still free: else the next file
    that is opened would take it, and be written to by whoever prints."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    os.set_inheritable(descriptor, True)
    return descriptor
