"""Keep a machine busy: use CPU time, write a file to disk, and send data over the loopback interface.

The argument is the path of a file, which is kept small. Prints a line when it has begun, and exits at the end of stdin.
"""

import os
import select
import socket
import sys

BLOCK = bytes(256 * 1024)
MESSAGE = BLOCK[:16384]

with open(sys.argv[1], "wb") as file, socket.create_server(("127.0.0.1", 0)) as server:
    near = socket.create_connection(server.getsockname())
    far, _ = server.accept()
    with near, far:
        print("busy", flush=True)
        while not select.select([sys.stdin], [], [], 0.02)[0]:
            sum(number * number for number in range(100_000))
            file.seek(0)
            file.write(BLOCK)
            file.flush()
            os.fsync(file.fileno())
            near.sendall(MESSAGE)
            far.recv(len(MESSAGE), socket.MSG_WAITALL)
