"""A certificate for servers of tests."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.tools import Missing, program


class Certificate(NamedTuple):
    """A self-signed certificate for localhost and 127.0.0.1: it is its own authority."""

    file: Path
    key: Path


def certificate(folder: Path) -> Certificate:
    """Make one in a folder."""
    made = Certificate(folder / "cert.pem", folder / "key.pem")
    line = [
        str(program("openssl")),
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    names = ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    done = subprocess.run(
        [*line, *names, "-keyout", str(made.key), "-out", str(made.file)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Missing(f"openssl: {done.stderr}")
    return made
