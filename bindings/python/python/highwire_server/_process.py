"""One process of the server."""

import faulthandler
import logging
import os
import random
import sys

from ._highwire import own_process
from ._importing import ApplicationNotFound, import_application
from ._lifespan import LifespanFailed
from ._options import Options
from ._server import Config, Server

logger = logging.getLogger("highwire.error")

#: The exit status of a process whose application cannot be served, so that another try is of no use.
CANNOT_SERVE = 3


def config_of(options: Options, app) -> Config:
    """Returns the settings of a server for the command's options."""
    limit = options.limit_max_requests
    if limit is not None:
        limit += random.randint(0, options.limit_max_requests_jitter)
    return Config(
        app=app,
        interface=options.interface,
        bind=options.binds(),
        threads=options.threads,
        loop=options.loop,
        engine=options.engine,
        http=options.http,
        lifespan=options.lifespan,
        root_path=options.root_path,
        ssl_certfile=options.ssl_certfile,
        ssl_keyfile=options.ssl_keyfile,
        ssl_ca_certs=options.ssl_ca_certs,
        ssl_cert_reqs=options.ssl_cert_reqs,
        backlog=options.backlog,
        limit_connections=options.limit_concurrency,
        limit_requests=limit,
        limit_body=options.limit_body,
        keep_alive=options.timeout_keep_alive,
        graceful_timeout=options.timeout_graceful_shutdown,
        request_timeout=options.timeout_request,
        ws_max_size=options.ws_max_size,
        ws_deflate=options.ws_deflate,
        access_log=options.access_log,
        forwarded_allow_ips=options.forwarded_allow_ips if options.proxy_headers else None,
        static_mounts=options.static_mounts(),
        static_expires=options.static_path_expires,
        server_name="highwire" if options.server_header else None,
    )


def load_environment(path: str) -> None:
    """Sets the environment variables of a file, except those that are set already."""
    try:
        from dotenv import load_dotenv
    except ImportError:
        raise ValueError("--env-file needs the package python-dotenv") from None
    if not load_dotenv(path):
        raise ValueError(f"--env-file: {path} cannot be read, or has no variables")


#: The seconds after the time for the end at which a process ends that threads of the application keep.
LATE = 5.0


def end_late(seconds: float) -> None:
    """Ends this process after a time, whatever its threads do, and writes where they are. A later call sets another time."""
    try:
        # It needs neither the interpreter's lock nor that of the log.
        faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)
    except (AttributeError, OSError, OverflowError, RuntimeError, ValueError) as error:
        logger.warning("a thread that does not end will keep this process: %s", error)


def serve(options: Options, pipe: int | None = None) -> int:
    """Serves until a signal to stop comes. Returns the exit status.

    pipe: the descriptor on which the supervisor learns that the process serves, and that it wants to be replaced.
    """

    def tell(what: bytes) -> None:
        if pipe is not None:
            try:
                os.write(pipe, what)
            except OSError:
                pass  # The supervisor is gone, and the signal to stop will come or not.

    own_process()
    try:
        # The supervisor goes on without what is only for the application.
        if options.env_file is not None:
            load_environment(options.env_file)
        try:
            app = import_application(options.app, options.app_dir, options.factory)
        except ApplicationNotFound as error:
            logger.error("%s", error)
            return CANNOT_SERVE
        except Exception:
            logger.exception("the application cannot be imported")
            return CANNOT_SERVE
        server = Server(config_of(options, app))
        until_end = options.timeout_graceful_shutdown + LATE
        server.run(
            on_start=lambda: tell(b"started\n"),
            on_limit=lambda: tell(b"replace\n"),
            on_stop=lambda is_cut: end_late(LATE if is_cut else until_end),
            is_supervised=pipe is not None,
        )
        # What the interpreter does at its end may take as long.
        end_late(until_end)
    except LifespanFailed as error:
        logger.error("%s", error, exc_info=error.__cause__)
        return CANNOT_SERVE
    except (OSError, ValueError) as error:
        logger.error("%s", error)
        return CANNOT_SERVE
    return 0
