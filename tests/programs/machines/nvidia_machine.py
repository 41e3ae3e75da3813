"""A machine or container with only these files of NVIDIA's driver, in a new mount namespace.

Usage: nvidia_machine.py FOLDER FILES LIBRARY COMMAND...

FILES is JSON: paths, a folder if it ends with "/"; a library is a link to LIBRARY, and all else is an empty file.
FOLDER is an empty one that it may use. Runs the command there; status 77, with the reason, if that is not allowed.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from tests.support import namespace

DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9)}

folder, files, library, *command = sys.argv[1:]
namespace.enter()
namespace.empty(folder, "/sys/module", "/proc/driver", "/dev", "/run")
for covered in ("/usr/lib", "/usr/local"):
    namespace.overlay(covered, folder)
for name, numbers in DEVICES.items():
    try:
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(*numbers))
    except OSError as error:
        print(f"/dev/{name}: {error}")
        sys.exit(77)
for name in json.loads(files):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if name.endswith("/"):
        path.mkdir()
    elif path.name.startswith("lib"):
        path.symlink_to(library)
    else:
        path.touch()
os.execvp(command[0], command)
