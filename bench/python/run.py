"""Compares servers of Python applications: CPU time of the whole server for each request.

    pip install ./bindings/python -r bench/python/requirements.txt  # and Debian's packages wrk, gcc, liburing-dev
    python bench/python/run.py [--rounds 5] [--seconds 3] [ROW ...]

Each server has one worker on CPU 0, and the generator, wrk, runs on CPU 1. The servers take turns within a round. The
output is a table with the medians, the least and the greatest value, and the ratio of Highwire to each.
"""

import argparse
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent

ECHO = 'wrk.method="POST"; wrk.body=string.rep("z", 10000)'

#: The bytes of a message of a WebSocket, and the connections of the fan-out.
MESSAGE, FAN = 16, 32

#: The path, the application, its interface, the script of wrk or the mode of wsload, and the servers.
ROWS = {
    "hello": ("/hello", "apps:asgi", "asgi", None, ("granian", "uvicorn")),
    "get 10 KB": ("/get", "apps:asgi", "asgi", None, ("granian", "uvicorn")),
    "echo 10 KB": ("/echo", "apps:asgi", "asgi", ECHO, ("granian", "uvicorn")),
    "stream of 64 parts": ("/stream", "apps:asgi", "asgi", None, ("granian", "uvicorn")),
    "FastAPI": ("/item/7", "apps:fastapi_app", "asgi", None, ("granian", "uvicorn")),
    "RSGI hello": ("/hello", "apps:rsgi", "rsgi", None, ("granian",)),
    "WebSocket echo of 16 bytes": ("/", "apps:websocket", "asgi", "wsload", ("granian", "uvicorn")),
    "WebSocket fan-out to 32": ("/", "apps:fan", "asgi", "wsload fan", ("granian", "uvicorn")),
    "WSGI hello": ("/hello", "apps:wsgi", "wsgi", None, ("granian", "fastpysgi")),
    "Flask hello": ("/hello", "apps:flask_app", "wsgi", None, ("granian", "fastpysgi")),
}

FASTPYSGI = "import fastpysgi,apps;app,attr=fastpysgi,'{attribute}';app.run(getattr(apps,attr),'127.0.0.1',{port},loglevel=0)"


def command(server: str, app: str, interface: str, port: int) -> list[str]:
    module, _, attribute = app.partition(":")
    return {
        "highwire": [f"{BIN}/highwire-server", "--log-level", "error", "--interface", interface, "--port", str(port), app],
        "granian": [f"{BIN}/granian", "--interface", interface, "--port", str(port), "--workers", "1", "--no-access-log",
                    "--log-level", "warning", app],
        "uvicorn": [f"{BIN}/uvicorn", "--port", str(port), "--loop", "uvloop", "--http", "httptools", "--no-access-log",
                    "--log-level", "warning", app],
        "fastpysgi": [sys.executable, "-c", FASTPYSGI.format(attribute=attribute, port=port)],
    }[server]  # fmt: skip


def wsload() -> str:
    """Builds the load generator for WebSockets."""
    program, source = HERE.parent / "bin" / "wsload", HERE.parent / "load" / "wsload.c"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        program.parent.mkdir(exist_ok=True)
        subprocess.run(["gcc", "-O3", "-march=native", str(source), "-o", str(program), "-luring"], check=True)
    return str(program)


def tree(pid: int) -> list[int]:
    """Returns a process and those that it has started."""
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            children = Path(f"/proc/{pid}/task/{task}/children").read_text().split()
            found += [process for child in children for process in tree(int(child))]
    except FileNotFoundError:
        pass
    return found


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for process in tree(pid):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_it_listens(server: str, process: subprocess.Popen, port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            if time.monotonic() > until or process.poll() is not None:
                raise SystemExit(f"{server} does not listen") from None
            time.sleep(0.05)
    time.sleep(0.3)


def stop(process: subprocess.Popen) -> None:
    """Stops a process and those that it has started."""
    for child in reversed(tree(process.pid)):
        try:
            os.kill(child, 15)
        except OSError:
            pass
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()


def measure(server: str, row: tuple, connections: int, seconds: int) -> tuple[float, float]:
    """Returns the microseconds of CPU time for each request, and the requests per second."""
    path, app, interface, script, _ = row
    port = free_port()
    arguments = ["taskset", "-c", "0", *command(server, app, interface, port)]
    process = subprocess.Popen(arguments, cwd=HERE, stdout=subprocess.DEVNULL)
    try:
        wait_until_it_listens(server, process, port)
        load = ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{seconds}s"]
        if script is not None and script.startswith("wsload"):
            fan = ["fan"] if script.endswith("fan") else []
            count = FAN if fan else connections
            load = ["taskset", "-c", "1", wsload(), str(port), path, str(count), str(MESSAGE), str(seconds), *fan]
        elif script is not None:
            Path("/tmp/highwire-bench.lua").write_text(script)
            load += ["-s", "/tmp/highwire-bench.lua"]
        before = cpu_seconds(process.pid)
        if load[3] == "wrk":
            load.append(f"http://127.0.0.1:{port}{path}")
        output = subprocess.run(load, capture_output=True, text=True, check=True).stdout
        spent = cpu_seconds(process.pid) - before
        if "Non-2xx" in output or "Socket errors" in output:
            raise SystemExit(f"{server}: {output}")
        if load[3] == "wrk":
            count = int(re.search(r"(\d+) requests in", output).group(1))
        else:
            count = float(re.search(r"Requests/sec: ([\d.]+)", output).group(1)) * seconds
        return spent / count * 1e6, count / seconds
    finally:
        stop(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=64)
    given = parser.parse_args()
    print("| row | server | requests/s | CPU a request, µs | Highwire / this |\n|---|---|---:|---:|---:|")
    for name in given.rows or ROWS:
        row = ROWS[name]
        servers = ["highwire", *(server for server in row[4] if (BIN / server).exists() or server == "fastpysgi")]
        results: dict[str, list[tuple[float, float]]] = {server: [] for server in servers}
        for _ in range(given.rounds):
            for server in servers:
                results[server].append(measure(server, row, given.connections, given.seconds))
        own = statistics.median(spent for spent, _ in results["highwire"])
        for server in servers:
            spent = [one for one, _ in results[server]]
            rate = statistics.median(rate for _, rate in results[server])
            middle = statistics.median(spent)
            spread = f"{middle:.1f} ({min(spent):.1f} to {max(spent):.1f})"
            print(f"| {name} | {server} | {rate:,.0f} | {spread} | {own / middle:.2f} |", flush=True)


if __name__ == "__main__":
    main()
