"""Asks several servers the cases of test_cases.py, and prints a table.

    pip install uvicorn[standard] hypercorn granian
    python tests/compare.py
"""

import collections
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree
from pathlib import Path

HERE = Path(__file__).parent
SERVERS = ("highwire", "uvicorn", "hypercorn", "granian")


def ask(server: str) -> dict[str, list[tuple[str, bool]]]:
    """Returns the cases of each group, and whether a server passes them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_cases.py"), f"--junitxml={report}"]
        subprocess.run(command, env=os.environ | {"CONFORMANCE_SERVER": server}, stdout=subprocess.DEVNULL, check=False)
        groups = collections.defaultdict(list)
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = case.get("name")
            passed = case.find("failure") is None and case.find("error") is None
            groups[name.partition("[")[0].removeprefix("test_").replace("_", " ")].append((name, passed))
        return groups


def main() -> None:
    servers = sys.argv[1:] or SERVERS
    results = {server: ask(server) for server in servers}
    names = {server: "highwire-server" if server == "highwire" else server for server in servers}
    print("| cases | " + " | ".join(f"{server} {importlib.metadata.version(names[server])}" for server in servers) + " |")
    print("|---|" + "---|" * len(servers))
    sums = collections.Counter()
    for group, cases in results[servers[0]].items():
        counts = []
        for server in servers:
            passed = sum(passed for _, passed in results[server].get(group, []))
            sums[server] += passed
            counts.append(str(passed) if passed == len(cases) else f"**{passed}**")
        print(f"| {group}: {len(cases)} | " + " | ".join(counts) + " |")
    total = sum(len(cases) for cases in results[servers[0]].values())
    print(f"| all: {total} | " + " | ".join(str(sums[server]) for server in servers) + " |")
    for server in servers:
        failed = [name for cases in results[server].values() for name, passed in cases if not passed]
        print(f"\n{server} fails:", *failed, sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    main()
