"""The options of the command and of `run`, with their environment variables."""

import argparse
import json
import logging
import logging.config
import os
import re
import sys
from dataclasses import asdict, dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version

from ._gunicorn import read_gunicorn

LOG_LEVELS = {"critical": 50, "error": 40, "warning": 30, "info": 20, "debug": 10}


@dataclass
class Options:
    """What the command serves, and how. Each option has the name of the command's, with `_` for `-`."""

    app: str = ""
    interface: str = "auto"
    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None
    fd: int | None = None
    bind: list[str] = field(default_factory=list)
    workers: int = 1
    threads: int = 1
    loop: str = "auto"
    engine: str = "auto"
    http: str = "auto"
    lifespan: str = "auto"
    root_path: str = ""
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_ca_certs: str | None = None
    ssl_cert_reqs: str | None = None
    backlog: int = 4096
    limit_concurrency: int | None = None
    limit_max_requests: int | None = None
    limit_max_requests_jitter: int = 0
    limit_body: int | None = None
    timeout_keep_alive: float | None = None
    timeout_graceful_shutdown: float = 30.0
    timeout_request: float | None = None
    ws_max_size: int = 16 * 1024 * 1024
    ws_deflate: bool = True
    server_header: bool = True
    proxy_headers: bool = True
    forwarded_allow_ips: str = "127.0.0.1,::1"
    static_path_mount: list[str] = field(default_factory=list)
    static_path_route: list[str] = field(default_factory=list)
    static_path_expires: int = 86_400
    access_log: bool = False
    log_config: str | None = None
    env_file: str | None = None
    workers_lifetime: float | None = None
    workers_max_rss: int | None = None
    log_level: str = "info"
    factory: bool = False
    app_dir: str | None = None
    reload: bool = False
    reload_dirs: list[str] = field(default_factory=list)

    def binds(self) -> list[str]:
        """Returns the addresses to listen on, as the engine spells them."""
        if self.bind:
            return self.bind
        if self.fd is not None:
            return [f"fd:{self.fd}"]
        if self.uds is not None:
            return [f"unix:{self.uds}"]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return [f"{host}:{self.port}"]

    def static_mounts(self) -> dict[str, str]:
        """Returns the folders whose files the server sends, by their paths. Raises ValueError."""
        routes = map(static_route, self.static_path_route or ["/static"])
        return dict(zip(routes, self.static_path_mount))

    def as_dict(self) -> dict:
        return asdict(self)


class Parser(argparse.ArgumentParser):
    """A parser that tells what is wrong in one line."""

    def error(self, message: str):
        self.exit(2, f"{self.prog}: {message}; see --help\n")


def own_version() -> str:
    """Returns the version of this package."""
    try:
        return version("highwire-server")
    except PackageNotFoundError:
        return "(unknown, because the package was not installed)"


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="highwire-server",
        description="Serves an ASGI, WSGI or RSGI application over HTTP/1, HTTP/2 and WebSocket.",
        epilog="Each option can be given by an environment variable, too: --log-level by HIGHWIRE_LOG_LEVEL, and those without a value "
        "by true or false.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--version", action="version", version=f"highwire-server {own_version()}")
    add("app", metavar="MODULE:ATTRIBUTE", nargs="?", help="the application; the attribute is `app` by default")
    add("-c", "--config", metavar="FILE", help="take options from a gunicorn.conf.py; those of the command line go before")
    add("--interface", choices=("auto", "asgi", "asgi3", "wsgi", "rsgi"), help="how the application is called (auto)")
    add("--host", help="the address to listen on (127.0.0.1)")
    add("--port", type=int, help="the port to listen on (8000)")
    add("--uds", metavar="PATH", help="listen on a unix socket")
    add("--fd", type=int, metavar="NUMBER", help="listen on a socket that was inherited")
    add("-b", "--bind", action="append", metavar="ADDRESS",
        help="listen on HOST:PORT, [IPV6]:PORT, unix:PATH or fd:NUMBER; repeatable")
    add("-w", "--workers", type=int, metavar="N", help="processes (1, or WEB_CONCURRENCY)")
    add("--threads", type=int, metavar="N", help="threads of each process that call a WSGI application (1)")
    add("--loop", choices=("auto", "asyncio", "uvloop"), help="the event loop (auto: asyncio, which is faster here)")
    add("--engine", choices=("auto", "uring", "readiness"), help="the interface to the kernel (auto)")
    add("--http", choices=("auto", "1", "2"), help="the versions of HTTP (auto: both)")
    add("--lifespan", choices=("auto", "on", "off"), help="the lifespan protocol of ASGI (auto)")
    add("--root-path", metavar="PATH", help="the path at which a proxy has mounted the application")
    add("--ssl-certfile", metavar="FILE", help="serve TLS with this certificate chain (PEM)")
    add("--ssl-keyfile", metavar="FILE", help="the private key (PEM), if it is not in --ssl-certfile")
    add("--ssl-ca-certs", metavar="FILE", help="the authorities (PEM) that may issue certificates of clients")
    add("--ssl-cert-reqs", choices=("none", "optional", "required", "0", "1", "2"),
        help="whether clients must have a certificate (required with --ssl-ca-certs)")
    add("--backlog", type=int, metavar="N", help="connections that may wait to be accepted (4096)")
    add("--limit-concurrency", type=int, metavar="N", help="the most connections of a process (as many as fit)")
    add("--limit-max-requests", type=int, metavar="N", help="replace a process after so many requests")
    add("--limit-max-requests-jitter", type=int, metavar="N", help="add up to N requests, at random (0)")
    add("--limit-body", type=int, metavar="BYTES", help="the most bytes of a request's body; 413 beyond it (WSGI: 1 GiB)")
    add("--timeout-keep-alive", type=float, metavar="SECONDS", help="close idle connections after so long (75)")
    add("--timeout-graceful-shutdown", type=float, metavar="SECONDS",
        help="let requests finish for so long after a signal to stop (30)")
    add("--timeout-request", type=float, metavar="SECONDS", help="answer 503 if the application takes longer (no limit)")
    add("--ws-max-size", type=int, metavar="BYTES", help="the most bytes of a WebSocket message (16 MiB)")
    add("--no-ws-deflate", dest="ws_deflate", action="store_false", help="do not compress WebSocket messages")
    add("--no-server-header", dest="server_header", action="store_false", help="send no Server field")
    add("--proxy-headers", dest="proxy_headers", action="store_true",
        help="believe X-Forwarded-For and X-Forwarded-Proto of trusted proxies; the default")
    add("--no-proxy-headers", dest="proxy_headers", action="store_false", help="believe them of no proxy")
    add("--forwarded-allow-ips", metavar="LIST",
        help="the proxies that are believed: addresses and networks, or * (127.0.0.1,::1)")
    add("--static-path-mount", action="append", metavar="FOLDER",
        help="let the server itself send the files of a folder; repeatable, with a route for each")
    add("--static-path-route", action="append", metavar="PATH", help="the path of the folder's files (/static)")
    add("--static-path-expires", type=int, metavar="SECONDS", help="how long clients may keep these files (86400)")
    add("--access-log", action="store_true", help="log each request with the logger highwire.access")
    add("--no-access-log", dest="access_log", action="store_false", help="do not log requests; the default")
    add("--log-config", metavar="FILE", help="set up logging from a file: .json, .yaml, or .ini")
    add("--env-file", metavar="FILE", help="set environment variables from a file (needs python-dotenv)")
    add("--workers-lifetime", type=float, metavar="SECONDS", help="replace a process after so long")
    add("--workers-max-rss", type=int, metavar="MIB", help="replace a process that takes more memory")
    add("--log-level", choices=tuple(LOG_LEVELS), help="what is logged (info)")
    add("--factory", action="store_true", help="ATTRIBUTE is a function that returns the application")
    add("--app-dir", metavar="FOLDER", help="search the application here (the working directory)")
    add("--reload", action="store_true", help="restart when Python files change (needs watchfiles)")
    add("--reload-dir", dest="reload_dirs", action="append", metavar="FOLDER", help="watch this folder; repeatable")
    parser.set_defaults(**{option.name: None for option in fields(Options)})
    return parser


def parse(arguments: list[str] | None = None, environment: dict[str, str] | None = None) -> Options:
    """Returns the options of a command line. Exits with the status 2 and one line if they are wrong."""
    environment = dict(os.environ if environment is None else environment)
    made = parser()
    given = vars(made.parse_args(arguments))
    options, configured = Options(), {}
    if given["config"] is not None:
        try:
            configured, unknown = read_gunicorn(given["config"])
        except ValueError as error:
            made.error(str(error))
        for name, value in configured.pop("environment", {}).items():
            os.environ.setdefault(name, value)
        for name, value in configured.items():
            configured[name] = of_setting(made, given["config"], name, value)
        if unknown:
            print(f"highwire-server: --config: without effect here: {', '.join(sorted(unknown))}", file=sys.stderr)
    for option in fields(Options):
        value = given[option.name]
        if value is None:
            variable = f"HIGHWIRE_{option.name.upper()}"
            text = environment.get(variable)
            if text is None and option.name == "workers":
                variable, text = "WEB_CONCURRENCY", environment.get("WEB_CONCURRENCY")
            if text is None:
                if option.name in configured:
                    setattr(options, option.name, configured[option.name])
                continue
            try:
                value = of_text(made, option.name, text)
            except (ValueError, argparse.ArgumentTypeError):
                made.error(f"{variable}={text!r} is not a value of --{option.name.replace('_', '-')}")
        setattr(options, option.name, value)
    if options.threads > 1 and options.timeout_request is configured.get("timeout_request"):
        # The timeout of gunicorn ends no requests if the command gives workers with threads.
        options.timeout_request = None
    if not options.app:
        made.error("the following arguments are required: MODULE:ATTRIBUTE")
    problem = check(options)
    if problem is not None:
        made.error(problem)
    if options.interface == "asgi3":
        options.interface = "asgi"
    return options


def of_setting(made: argparse.ArgumentParser, path: str, name: str, value):
    """Reads a value of a file as the option of that name does."""
    action = next(action for action in made._actions if action.dest == name)
    if value is None:
        return None
    wrong = f"--config: {path}: {value!r} is not a value of --{name.replace('_', '-')}"
    if isinstance(value, str) or action.nargs == 0:
        try:
            return of_text(made, name, str(value))
        except (ValueError, argparse.ArgumentTypeError):
            made.error(wrong)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if action.type is int and not (is_number and float(value).is_integer()) or action.type is float and not is_number:
        made.error(wrong)
    if action.type is None and value is not None and not isinstance(value, list):
        made.error(wrong)
    return int(value) if action.type is int else value


def of_text(made: argparse.ArgumentParser, name: str, text: str):
    """Reads the value of an environment variable as the option of that name does."""
    action = next(action for action in made._actions if action.dest == name)
    if action.nargs == 0:
        if text.lower() in ("1", "true", "yes", "on"):
            return True
        if text.lower() in ("0", "false", "no", "off", ""):
            return False
        raise ValueError(text)
    value = action.type(text) if callable(action.type) else text
    if action.choices is not None and value not in action.choices:
        raise ValueError(text)
    return [value] if isinstance(action, argparse._AppendAction) else value


def check(options: Options) -> str | None:
    """Returns what is wrong with the options together."""
    if options.workers < 1:
        return "--workers must be at least 1"
    if options.threads < 1:
        return "--threads must be at least 1"
    if not 0 <= options.port <= 65535:
        return "--port must be at most 65535"
    for address in options.bind:
        if not is_address(address):
            return f"--bind must be HOST:PORT, [IPV6]:PORT, unix:PATH or fd:NUMBER, not {address!r}"
    for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "log_config", "env_file"):
        path = getattr(options, name)
        if path is not None and (not os.path.exists(path) or os.path.isdir(path)):
            return f"--{name.replace('_', '-')}: there is no file {path!r}"
    if options.reload and options.workers > 1:
        return "--reload serves with one process; leave out --workers"
    routes = options.static_path_route or ["/static"]
    if options.static_path_mount and len(routes) != len(options.static_path_mount):
        return "--static-path-mount and --static-path-route must be given equally often"
    if options.static_path_route and not options.static_path_mount:
        return "--static-path-route needs --static-path-mount"
    try:
        mounts = options.static_mounts()
    except ValueError as error:
        return f"--static-path-route: {error}"
    for folder in options.static_path_mount:
        if not os.path.isdir(folder):
            return f"--static-path-mount: there is no folder {folder!r}"
    if len(mounts) < len(options.static_path_mount):
        return "--static-path-route is given twice with the same path"
    if not 0 <= options.static_path_expires <= 2**31:
        return "--static-path-expires must be from 0 to 2147483648"
    for name in ("workers_lifetime", "workers_max_rss"):
        value = getattr(options, name)
        if value is not None and value <= 0:
            return f"--{name.replace('_', '-')} must be more than 0"
    if options.timeout_keep_alive is not None and options.timeout_keep_alive <= 0:
        return "--timeout-keep-alive must be more than 0"
    if options.ssl_keyfile and not options.ssl_certfile:
        return "--ssl-keyfile needs --ssl-certfile"
    return None


def static_route(route: str) -> str:
    """Returns the path of a mounted folder without a slash at its end. Raises ValueError."""
    path = route.rstrip("/")
    if not re.fullmatch(r"(/(?![:*])[A-Za-z0-9._~!$&'()*+,;=:@-]+)+", path) or {".", ".."} & set(path.split("/")):
        raise ValueError(f"{route!r} is not a path below / of letters, digits and signs that a URL has as they are")
    return path


def is_address(address: str) -> bool:
    """Returns true if a text is an address to listen on."""
    kind, _, rest = address.partition(":")
    if kind == "fd":
        return rest.isascii() and rest.isdigit()
    port = address.rpartition(":")[2]
    is_port = port.isascii() and port.isdigit() and int(port) <= 65535
    return bool(rest) and (kind == "unix" or is_port)


def configure_logging(path: str) -> None:
    """Sets up logging from a file. Raises ValueError if the file is wrong."""

    def use(settings: dict) -> None:
        # By default, this would disable the server's own loggers.
        settings.setdefault("disable_existing_loggers", False)
        logging.config.dictConfig(settings)

    try:
        if path.endswith(".json"):
            with open(path, encoding="utf-8") as file:
                use(json.load(file))
        elif path.endswith((".yaml", ".yml")):
            import yaml

            with open(path, encoding="utf-8") as file:
                use(yaml.safe_load(file))
        else:
            logging.config.fileConfig(path, disable_existing_loggers=False)
    except ImportError:
        raise ValueError(f"--log-config: {path} needs the package PyYAML") from None
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(f"--log-config: {path}: {str(reason).splitlines()[0]}") from error


def set_up_logging(level: str) -> None:
    """Lets the server's loggers write to standard error, unless the program has set up its logging."""
    logger = logging.getLogger("highwire")
    logger.setLevel(LOG_LEVELS[level])
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s [%(process)d] %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
