"""Base images made from this machine's own Debian packages: no image registry is asked."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

PACKAGES = [
    "python3",
    "python3-venv",
    "bash",
    "dash",
    "coreutils",
    "grep",
    "sed",
    "findutils",
    "tar",
    "gzip",
    "ca-certificates",
    "libgomp1",
    "libstdc++6",
    "base-files",
    "netbase",
    "libc-bin",
]
"""With what they depend on, they are the image."""

BESIDES = [
    "bin",
    "sbin",
    "lib",
    "lib64",
    "tmp",
    "etc/passwd",
    "etc/group",
    "etc/nsswitch.conf",
    "etc/ssl/certs",
    "etc/ssl/certs/ca-certificates.crt",
    "etc/ld.so.cache",
]
"""Paths that no package owns. The certificates that this machine trusts are among them."""

LEFT_OUT = re.compile(r"/usr/share/(doc|man|locale|info|bash-completion)/")
MERGED = re.compile(r"^/(s?bin|lib|lib64)/")


def make_python_image(
    docker: Callable[..., object], tag: str, folder: Path, more: Collection[str] = ()
) -> None:
    """Import the image ``tag``, and prove that its Python runs.

    Args:
        docker: runs the Docker client.
        tag: of the new image.
        folder: for temporary files.
        more: packages that it has besides ``PACKAGES``.

    Raises:
        AssertionError: Docker failed.
    """
    names = folder / "files"
    archive = folder / "python.tar"
    names.write_text("\n".join(sorted(_files([*PACKAGES, *more]))) + "\n")
    try:
        subprocess.run(
            [
                "tar",
                "-C",
                "/",
                "--no-recursion",
                "--ignore-failed-read",
                "-T",
                str(names),
                "-cf",
                str(archive),
            ],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        changes = ("ENV LANG=C.UTF-8", "ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt", 'CMD ["python3"]')
        docker("import", *(f"--change={change}" for change in changes), str(archive), tag)
    finally:
        archive.unlink(missing_ok=True)
    docker(
        "run",
        "--rm",
        "--network",
        "none",
        tag,
        "python3",
        "-c",
        "import ssl, sqlite3, ctypes, venv, ensurepip",
    )


def missing_packages(packages: Collection[str] = PACKAGES) -> list[str]:
    """Return the packages of the image that are not installed here."""
    there = _installed()
    return [name for name in packages if name not in there]


def _files(packages: Collection[str]) -> set[str]:
    """Return the paths, without the leading slash, of the packages and of what goes with them."""
    there = _installed()
    options = "--recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances"
    depends = _output("apt-cache", "depends", "--installed", *options.split(), *packages)
    names = {line.partition(":")[0] for line in depends.splitlines() if re.match("[a-z0-9]", line)}
    owned = _output("dpkg", "-L", *(there[name] for name in sorted(names) if name in there))
    paths = {MERGED.sub(r"/usr/\1/", path) for path in owned.splitlines() if path.startswith("/")}
    kept = {path[1:] for path in paths if not LEFT_OUT.match(path) and path not in ("/", "/.")}
    return kept | set(BESIDES)


def _installed() -> dict[str, str]:
    """Return the installed packages: name -> name as dpkg wants it, with an architecture for some."""
    lines = _output("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${binary:Package}\n").splitlines()
    found = (line.split()[1] for line in lines if line.startswith("ii"))
    return {name.partition(":")[0]: name for name in found}


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
