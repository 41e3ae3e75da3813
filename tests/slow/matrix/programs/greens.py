"""Patch the standard library, then run crowd.py: greens.py gevent|eventlet[-exception]."""

import runpy
import sys
from pathlib import Path

if sys.argv[1].startswith("gevent"):
    from gevent import monkey

    monkey.patch_all()
else:
    import eventlet

    eventlet.monkey_patch()
sys.argv[1] = f"green-{sys.argv[1]}"
runpy.run_path(str(Path(__file__).with_name("crowd.py")), run_name="__main__")
