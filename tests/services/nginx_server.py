"""A real nginx on loopback that runs a configuration of the documentation."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

from dmls_core.devstack.supervisor import wait_until
from tests.services.debian import find_program
from tests.services.seaweed import free_ports

START_SECONDS = 30
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx(config: str, addresses: Mapping[str, str], folder: Path) -> Iterator[dict[int, str]]:
    """Run nginx until the end of the block.

    Args:
        config: as it is written, but for addresses.
        addresses: what stands in the configuration -> what is there in this test.
        folder: for its files.

    Yields:
        Where it listens, by the port in the configuration.

    Raises:
        FileNotFoundError: there is no nginx here, nor a way to fetch it.
    """
    program = find_program("nginx", "usr/sbin/nginx", folder / "package")
    for written, real in addresses.items():
        config = re.sub(rf"server {re.escape(written)}(?=[ ;])", f"server {real}", config)
    ports = [int(port) for port in re.findall(r"listen (\d+)", config)]
    listening = {port: f"127.0.0.1:{free}" for port, free in zip(ports, free_ports(len(ports)), strict=True)}
    for port, address in listening.items():
        config = re.sub(rf"listen {port}\b", f"listen {address}", config)
    own = "".join(f"{name}_temp_path {folder / name}; " for name in TEMPORARY)
    config = config.replace("http {", f"http {{ access_log off; {own}", 1)
    file = folder / "nginx.conf"
    file.write_text(f"daemon off; user {getuser()}; pid {folder / 'pid'}; error_log stderr;\n{config}")
    log = folder / "nginx.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [program, "-e", "stderr", "-p", folder, "-c", file], stdout=output, stderr=output
        )
    try:
        wait_until(lambda: (folder / "pid").is_file() or process.poll() is not None, START_SECONDS)
        assert process.poll() is None, log.read_text()
        yield listening
    finally:
        process.terminate()
        process.wait(START_SECONDS)
