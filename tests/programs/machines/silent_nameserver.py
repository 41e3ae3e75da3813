"""`otel-hardware run` where the name server does not respond: the C library would wait for it for minutes.

Arguments: the protocol, and those of the command. Prints the exit status and the messages as JSON. Exit status 77 if
namespaces are not allowed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile

from tests.support.namespace import bind, check, enter, libc, loopback

NEW_NETWORK = 0x40000000
FILES = {
    "/etc/resolv.conf": "nameserver 127.0.0.1\noptions timeout:30 attempts:5\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}

enter()
check(libc.unshare(NEW_NETWORK), "a network namespace")
loopback()
with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
    silent.bind(("127.0.0.1", 53))
    for path, text in FILES.items():
        if os.path.exists(path):
            file = os.path.join(folder, os.path.basename(path))
            with open(file, "w") as config:
                config.write(text)
            bind(file, path)
    protocol, *arguments = sys.argv[1:]
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.example:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    line = ["otel-hardware", "run", "--sources", "process", *arguments]
    answer = subprocess.run(line, env={**os.environ, **env}, capture_output=True, text=True, check=False)
print(json.dumps([answer.returncode, answer.stderr]))
