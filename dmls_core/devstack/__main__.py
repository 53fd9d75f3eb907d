"""``python -m dmls_core.devstack up|down|status|doctor``: the platform without the ``dmls`` command."""

from __future__ import annotations

import sys
import time

from dmls_core.devstack import Platform
from dmls_core.errors import DmlsError


def main(arguments: list[str]) -> int:
    """Do what the one argument says and return the exit code."""
    begun = time.monotonic()

    def tell(name: str, state: str, seconds: float) -> None:
        print(f"{time.monotonic() - begun:6.1f} s  {name:22} {state} {seconds:.1f} s", flush=True)  # noqa: T201

    platform = Platform()
    match arguments:
        case ["up"]:
            state = platform.up(tell)
        case ["down"]:
            platform.down()
            state = platform.status()
        case ["doctor"]:
            for check in platform.doctor():
                print(f"{check.state:8} {check.name:22} {check.message}  {check.hint}")  # noqa: T201
            return 0
        case ["status"]:
            state = platform.status()
        case _:
            print(__doc__, file=sys.stderr)  # noqa: T201
            return 2
    for service in state.services:
        print(f"{service.name:22} {service.state:10} {service.url}")  # noqa: T201
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except DmlsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)
