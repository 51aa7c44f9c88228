"""The command `highwire-server`."""

import json
import os
import sys

from ._options import Options, parse, set_up_logging


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = parse(arguments)
    set_up_logging(options.log_level)
    # One process suffices unless something has to outlive it.
    if options.workers == 1 and not options.reload and options.limit_max_requests is None:
        from ._process import serve

        sys.exit(serve(options))
    from ._supervisor import Supervisor

    sys.exit(Supervisor(options).run())


def worker() -> None:
    """Runs one process of a supervisor, which has put the options into the environment."""
    from ._process import serve

    given = json.loads(os.environ.pop("HIGHWIRE_PROCESS"))
    options = Options(**given["options"])
    set_up_logging(options.log_level)
    sys.exit(serve(options, given["pipe"]))


if __name__ == "__main__":
    worker()
