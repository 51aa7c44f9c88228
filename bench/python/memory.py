"""Measures what a server of Python applications keeps: after many requests, and after event streams whose clients vanish.

    python bench/python/memory.py [--server highwire] [--requests 1000000] [--streams 10000]

Needs Debian's package wrk. The figures are the anonymous memory of the server's processes.
"""

import argparse
import resource
import socket
import struct
import subprocess
import time
from pathlib import Path

from run import HERE, command, cpu_seconds, free_port, stop, tree, wait_until_it_listens

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"


def memory(pid: int) -> float:
    """Returns the anonymous memory of a process and of those that it has started, in MiB."""
    kib = 0
    for process in tree(pid):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                kib += int(line.split()[1])
    return kib / 1024


def reset(connection: socket.socket) -> None:
    """Closes a connection with a reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def disturb(port: int, path: bytes, count: int) -> None:
    """Begins requests, half of which are left with a reset while the application handles them."""
    for number in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(GET % path)
        if number % 2:
            connection.recv(100)
        reset(connection)


def requests(pid: int, port: int, count: int) -> None:
    """Prints the memory after each tenth of the requests."""
    done, step = 0, count // 10
    while done < count:
        begun = done
        while done - begun < step:
            load = ["taskset", "-c", "1", "wrk", "-t1", "-c64", "-d1s", f"http://127.0.0.1:{port}/hello"]
            output = subprocess.run(load, capture_output=True, text=True, check=True).stdout
            done += int(output.partition(" requests in")[0].split()[-1])
        disturb(port, b"/sleep", 200)
        disturb(port, b"/stream", 200)
        time.sleep(0.5)
        print(f"{done:,} requests: {memory(pid):.1f} MiB", flush=True)


def streams(pid: int, port: int, count: int) -> None:
    """Opens event streams, lets their clients vanish, and prints what is left."""
    before = memory(pid)
    connections = []
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(GET % b"/events")
        connections.append(connection)
    for connection in connections:
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    during = memory(pid)
    for connection in connections:
        reset(connection)
    time.sleep(2)
    cpu = cpu_seconds(pid)
    time.sleep(3)
    cpu, after = cpu_seconds(pid) - cpu, memory(pid)
    each = (during - before) * 1024 / count
    print(f"{count:,} event streams: {during - before:.1f} MiB, {each:.1f} KiB each; 2 s after their end {after - before:+.1f} MiB, "
          f"and {cpu:.2f} s of CPU time in 3 s", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="highwire")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=10_000)
    given = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, given.streams + 1000), most))
    port = free_port()
    arguments = ["taskset", "-c", "0", *command(given.server, "apps:asgi", "asgi", port)]
    process = subprocess.Popen(arguments, cwd=HERE, stdout=subprocess.DEVNULL)
    try:
        wait_until_it_listens(given.server, process, port)
        disturb(port, b"/stream", 200)
        time.sleep(0.5)
        print(f"at the start: {memory(process.pid):.1f} MiB", flush=True)
        requests(process.pid, port, given.requests)
        for _ in range(3):
            streams(process.pid, port, given.streams)
    finally:
        stop(process)


if __name__ == "__main__":
    main()
