"""The command `highwire-server`."""

import json
import os
import sys

from ._options import Options, configure_logging, parse, set_up_logging


def main(arguments: list[str] | None = None) -> None:
    """Runs the command."""
    options = parse(arguments)
    start_logging(options)
    # One process suffices unless something has to outlive it.
    replaces = (options.limit_max_requests, options.workers_lifetime, options.workers_max_rss)
    if options.workers == 1 and not options.reload and all(limit is None for limit in replaces):
        from ._process import serve

        sys.exit(serve(options))
    from ._supervisor import Supervisor

    sys.exit(Supervisor(options).run())


def start_logging(options: Options) -> None:
    """Sets up logging as the options say. Exits with the status 2 and one line if that is impossible."""
    try:
        if options.log_config is not None:
            configure_logging(options.log_config)
    except ValueError as error:
        print(f"highwire-server: {error}", file=sys.stderr)
        sys.exit(2)
    set_up_logging(options.log_level)


def worker() -> None:
    """Runs one process of a supervisor, which has put the options into the environment."""
    from ._process import serve

    given = json.loads(os.environ.pop("HIGHWIRE_PROCESS"))
    options = Options(**given["options"])
    start_logging(options)
    sys.exit(serve(options, given["pipe"]))


if __name__ == "__main__":
    worker()
