"""Reads the settings of gunicorn, from the file that its users have."""

import runpy
from collections.abc import Callable

#: The settings of gunicorn that have an option here.
SAME = {
    "wsgi_app": "app",
    "workers": "workers",
    "threads": "threads",
    "backlog": "backlog",
    "worker_connections": "limit_concurrency",
    "max_requests": "limit_max_requests",
    "max_requests_jitter": "limit_max_requests_jitter",
    "graceful_timeout": "timeout_graceful_shutdown",
    "keepalive": "timeout_keep_alive",
    "certfile": "ssl_certfile",
    "keyfile": "ssl_keyfile",
    "reload": "reload",
    "loglevel": "log_level",
    "logconfig": "log_config",
    "ca_certs": "ssl_ca_certs",
    "forwarded_allow_ips": "forwarded_allow_ips",
    "chdir": "app_dir",
}

#: Settings of gunicorn without which this server does the same.
NEEDLESS = {"preload_app", "proc_name", "worker_tmp_dir", "capture_output", "reuse_port"}

#: Settings that the command must not go on without, because the server would run with other rights than its user wants.
RIGHTS = {"user", "group", "initgroups"}

#: The classes of workers whose requests gunicorn ends after `timeout`, if they have one thread. It only watches that others are
#: alive.
SYNC = (None, "sync")

#: The classes of workers that do what this server does for an application of the same kind.
KNOWN_CLASSES = ("sync", "gthread", "uvicorn.workers.UvicornWorker", "uvicorn_worker.UvicornWorker")


def read_gunicorn(path: str) -> tuple[dict, list[str]]:
    """Returns the options of a `gunicorn.conf.py`, and the names of its settings that have none. Raises ValueError."""
    try:
        settings = runpy.run_path(path)
    except OSError as error:
        raise ValueError(f"--config: {path}: {error.strerror}") from None
    except Exception as error:
        raise ValueError(f"--config: {path}: {type(error).__name__}: {error}") from None
    options, unknown = {}, []
    for name, value in settings.items():
        # What a file imports and computes for itself is no setting.
        if name.startswith("_") or value is None or isinstance(value, type) or type(value).__name__ == "module":
            continue
        if name in RIGHTS and value is not False:
            raise ValueError(f"--config: {path}: {name} cannot be changed here; start the command with the rights that it needs")
        if name == "max_requests" and value == 0:
            continue
        if name in SAME:
            options[SAME[name]] = value.lower() if name == "loglevel" and isinstance(value, str) else value
        elif name == "timeout" and settings.get("worker_class") in SYNC and settings.get("threads", 1) in (1, "1"):
            options["timeout_request"] = value or None
        elif name == "bind":
            addresses = [value] if isinstance(value, str) else value
            if not isinstance(addresses, (list, tuple)) or not all(isinstance(one, str) for one in addresses):
                raise ValueError(f"--config: {path}: bind = {value!r} is neither an address nor a list of addresses")
            options["bind"] = [address(one) for one in addresses]
        elif name in ("accesslog", "errorlog"):
            if name == "accesslog":
                options["access_log"] = True
            if value != "-":
                unknown.append(f"{name} (the log goes to standard error; --log-config can change that)")
        elif name == "raw_env":
            try:
                options["environment"] = dict(pair.split("=", 1) for pair in value)
            except (AttributeError, TypeError, ValueError):
                raise ValueError(f"--config: {path}: raw_env = {value!r} is not a list of NAME=VALUE") from None
        elif name == "worker_class":
            if value not in KNOWN_CLASSES:
                unknown.append(name)
        elif name not in NEEDLESS and (name in SETTINGS or isinstance(value, Callable)):
            unknown.append(name)
    return options, unknown


#: Other settings of gunicorn, which are told if they are set.
SETTINGS = {
    "umask", "pidfile", "daemon", "logconfig_dict", "access_log_format", "statsd_host", "timeout",
    "proxy_protocol", "ssl_version", "cert_reqs", "ciphers", "limit_request_line", "limit_request_fields",
    "limit_request_field_size", "tmp_upload_dir", "pythonpath", "secure_scheme_headers", "reload_extra_files",
}  # fmt: skip


def address(text: str) -> str:
    """Returns an address as this server spells it."""
    if text.startswith("fd://"):
        return f"fd:{text[5:]}"
    if text.startswith("unix:"):
        return "unix:" + text[5:].removeprefix("//")
    for scheme in ("http://", "tcp://"):
        text = text.removeprefix(scheme)
    if text.startswith(":"):
        return "0.0.0.0" + text
    return text if ":" in text.rpartition("]")[2] else f"{text}:8000"
