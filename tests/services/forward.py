"""Forward TCP ports: ``forward.py LISTEN:PORT=TARGET:PORT...``, until it is ended. Needs no package."""

from __future__ import annotations

import asyncio
import contextlib
import sys


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write what is read, until either side ends."""
    with contextlib.suppress(OSError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()


async def forward(listen: str, target: str) -> None:
    """Connect each client of ``listen`` with ``target``."""
    host, port = target.split(":")

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        await asyncio.gather(copy(reader, far_writer), copy(far_reader, writer))

    own_host, own_port = listen.split(":")
    await (await asyncio.start_server(connect, own_host, int(own_port))).serve_forever()


async def main() -> None:
    """Forward all pairs of the command line."""
    await asyncio.gather(*(forward(*pair.split("=")) for pair in sys.argv[1:]))


if __name__ == "__main__":
    asyncio.run(main())
