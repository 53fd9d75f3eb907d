"""A wall clock that a test sets, for the processes of one platform; the machine's own stays as it is."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

HERE = Path(__file__).parent


class SetClock:
    """Seconds by which the clock of the processes with ``environment`` differs from the machine's.

    A preloaded library adds them to what the C library says; monotonic clocks stay. SeaweedFS does not use
    the C library, and refuses signatures of another day: ``sitecustomize.py`` signs requests to it with the
    machine's clock. Triton, which waits until moments of the wall clock, does not see the seconds either.
    """

    def __init__(self, folder: Path) -> None:
        library = folder / "set_clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, HERE / "clock.c"], check=True)
        self._seconds = folder / "set_clock.seconds"
        self._seconds.write_bytes(struct.pack("q", 0))
        self.environment = {
            "LD_PRELOAD": str(library),
            "SET_CLOCK": str(self._seconds),
            "PYTHONPATH": str(HERE),
        }

    @staticmethod
    def possible() -> bool:
        """Return whether the library can be compiled here."""
        return shutil.which("cc") is not None

    def set(self, seconds: int) -> None:
        """Set the clock to so many seconds after the machine's."""
        with self._seconds.open("r+b") as file:
            file.write(struct.pack("q", seconds))
