"""The program that reads Graphcore's library, in a child process, because the library may hang, print or crash.

Each line of its output is JSON: a list of devices, each a mapping of texts; or an object with the error after which it
ends. It needs Python's standard library only::

    python -I -S child.py FOLDER all|active SECONDS
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time


def main(folder: str, discovery: str, seconds: float) -> None:
    """Print the devices periodically."""
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # the library may print
    sys.path.append(folder)  # last: it may have modules with names of the standard library
    try:
        library = importlib.import_module("gcipuinfo")
        arguments = [library.DiscoverAllPartitionIPUs] if discovery == "all" else []
        information = library.gcipuinfo(*arguments)
        information.setUpdateMode(True)  # each call updates the values
        while True:
            devices = [dict(device).items() for device in information.getDevices()]
            words = [{str(key): str(value) for key, value in device} for device in devices]
            print(json.dumps(words), file=output, flush=True)
            time.sleep(seconds)
    except Exception as error:
        print(json.dumps({"error": f"gcipuinfo: {type(error).__name__}: {error}"}), file=output, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
