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
    "timeout": "timeout_request",
    "graceful_timeout": "timeout_graceful_shutdown",
    "keepalive": "timeout_keep_alive",
    "certfile": "ssl_certfile",
    "keyfile": "ssl_keyfile",
    "reload": "reload",
    "loglevel": "log_level",
    "forwarded_allow_ips": "forwarded_allow_ips",
    "chdir": "app_dir",
}

#: Settings of gunicorn that mean nothing here, because what they change is always so.
NEEDLESS = {"worker_class", "preload_app", "proc_name", "errorlog", "worker_tmp_dir", "capture_output", "reuse_port"}

#: The numbers that stand for "no limit" in gunicorn.
NO_LIMIT = {"max_requests": 0, "timeout": 0}


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
        if name in SAME:
            options[SAME[name]] = None if NO_LIMIT.get(name) == value else value
        elif name == "bind":
            options["bind"] = [address(one) for one in ([value] if isinstance(value, str) else value)]
        elif name == "accesslog":
            options["access_log"] = True
        elif name == "raw_env":
            options["environment"] = dict(pair.split("=", 1) for pair in value)
        elif name not in NEEDLESS and (name in SETTINGS or isinstance(value, Callable)):
            unknown.append(name)
    return options, unknown


#: Other settings of gunicorn, which are told if they are set.
SETTINGS = {
    "user", "group", "umask", "pidfile", "daemon", "logconfig", "logconfig_dict", "access_log_format", "statsd_host",
    "proxy_protocol", "ssl_version", "ca_certs", "cert_reqs", "ciphers", "limit_request_line", "limit_request_fields",
    "limit_request_field_size", "initgroups", "tmp_upload_dir", "pythonpath", "secure_scheme_headers", "reload_extra_files",
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
