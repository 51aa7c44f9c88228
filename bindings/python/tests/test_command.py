"""The command: its options, its errors, its processes."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from highwire_server._options import parse

CANNOT_SERVE = 3

HELLO = '''
import os

async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d " % os.getpid() + TEXT})
    else:
        raise RuntimeError(scope["type"])

TEXT = b"hello"

def make():
    return app
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "hello.py").write_text(HELLO)
    return tmp_path


def get(server, path: str = "/") -> str:
    return httpx.get(server.url + path, trust_env=False, timeout=20).text


def command(*arguments: str, folder: Path | None = None, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "highwire_server", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environment,
        timeout=30,
    )


def test_the_settings_of_gunicorn(tmp_path, capsys):
    (tmp_path / "gunicorn.conf.py").write_text(
        "import multiprocessing\nworkers = min(3, multiprocessing.cpu_count() + 8)\nbind = ['10.0.0.1:80', 'unix:/a', ':81', 'fd://3']\n"
        "timeout = 0\nkeepalive = 7\nmax_requests = 100\nworker_class = 'gevent'\naccesslog = '-'\npidfile = '/p'\nloglevel = 'WARNING'\nerrorlog = '/e'\n"
        "raw_env = ['HIGHWIRE_TEST_VALUE=1']\nwsgi_app = 'a:b'\nthreads = 4\n"
        "def post_fork(server, worker):\n    pass\n"
    )
    options = parse(["--config", str(tmp_path / "gunicorn.conf.py"), "--threads", "2"], {"HIGHWIRE_TIMEOUT_KEEP_ALIVE": "9"})
    assert (options.app, options.workers, options.threads, options.timeout_keep_alive) == ("a:b", 3, 2, 9)
    assert options.binds() == ["10.0.0.1:80", "unix:/a", "0.0.0.0:81", "fd:3"]
    assert (options.timeout_request, options.limit_max_requests, options.access_log) == (None, 100, True)
    assert os.environ.pop("HIGHWIRE_TEST_VALUE") == "1"
    assert options.log_level == "warning"
    told = "errorlog (the log goes to standard error; --log-config can change that), pidfile, post_fork, timeout, worker_class"
    assert capsys.readouterr().err == f"highwire-server: --config: without effect here: {told}\n"


@pytest.mark.parametrize(("worker_class", "seconds"), [("", 3), ("worker_class = 'sync'", 3), ("worker_class = 'gthread'", None), ("threads = 2", None)])
def test_the_timeout_of_gunicorn_is_one_of_requests_for_its_sync_workers_only(tmp_path, worker_class, seconds):
    (tmp_path / "gunicorn.conf.py").write_text(f"timeout = 3\n{worker_class}\n")
    arguments = ["a:b", "--config", str(tmp_path / "gunicorn.conf.py")]
    assert parse(arguments, {}).timeout_request == seconds
    assert parse([*arguments, "--threads", "2"], {}).timeout_request is None
    assert parse([*arguments, "--threads", "2", "--timeout-request", "3"], {}).timeout_request == 3


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("loglevel = 'trace'", "'trace' is not a value of --log-level"),
        ("bind = 8000", "bind = 8000 is neither an address nor a list of addresses"),
        ("bind = 'a:b:c'", "--bind must be HOST:PORT"),
        ("workers = 'two'", "'two' is not a value of --workers"),
        ("workers = 2.5", "2.5 is not a value of --workers"),
        ("workers = True", "True is not a value of --workers"),
        ("keepalive = []", "[] is not a value of --timeout-keep-alive"),
        ("reload = 'perhaps'", "'perhaps' is not a value of --reload"),
        ("certfile = 3", "3 is not a value of --ssl-certfile"),
        ("raw_env = ['A']", "raw_env = ['A'] is not a list of NAME=VALUE"),
        ("user = 'nobody'", "user cannot be changed here"),
        ("logconfig = 'none.ini'", "there is no file 'none.ini'"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_wrong_settings_of_gunicorn_are_told_in_one_line(tmp_path, capsys, line, text):
    (tmp_path / "gunicorn.conf.py").write_text(line + "\n")
    with pytest.raises(SystemExit) as ended:
        parse(["a:b", "--config", str(tmp_path / "gunicorn.conf.py")], {})
    error = capsys.readouterr().err
    assert ended.value.code == 2 and text in error and len(error.splitlines()) == 1


def test_numbers_of_gunicorn_may_be_text(tmp_path):
    (tmp_path / "gunicorn.conf.py").write_text("workers = '2'\ntimeout = '30'\nmax_requests = 0\n")
    options = parse(["a:b", "--config", str(tmp_path / "gunicorn.conf.py")], {})
    assert (options.workers, options.timeout_request, options.limit_max_requests) == (2, 30.0, None)


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        ([], {}, "required: MODULE:ATTRIBUTE"),
        (["a:b", "--port", "x"], {}, "argument --port: invalid int value: 'x'"),
        (["a:b", "--port", "70000"], {}, "--port must be at most 65535"),
        (["a:b", "--workers", "0"], {}, "--workers must be at least 1"),
        (["a:b", "--reload", "--workers", "2"], {}, "--reload serves with one process"),
        (["a:b", "--ssl-keyfile", __file__], {}, "--ssl-keyfile needs --ssl-certfile"),
        (["a:b", "--ssl-keyfile", "k"], {}, "--ssl-keyfile: there is no file 'k'"),
        (["a:b", "--env-file", "no-such"], {}, "--env-file: there is no file 'no-such'"),
        (["a:b", "--bind", "127.0.0.1"], {}, "--bind must be HOST:PORT, [IPV6]:PORT, unix:PATH or fd:NUMBER, not '127.0.0.1'"),
        (["a:b", "--bind", "fd:x"], {}, "not 'fd:x'"),
        (["a:b", "--timeout", "3"], {}, "unrecognized arguments: --timeout 3"),
        (["a:b", "--timeout-keep-alive", "0"], {}, "--timeout-keep-alive must be more than 0"),
        (["a:b", "--workers-lifetime", "0"], {}, "--workers-lifetime must be more than 0"),
        (["-c", "/no/such"], {}, "--config: /no/such: No such file or directory"),
        (["a:b", "--no-such"], {}, "unrecognized arguments: --no-such"),
        (["a:b"], {"HIGHWIRE_PORT": "x"}, "HIGHWIRE_PORT='x' is not a value of --port"),
        (["a:b"], {"HIGHWIRE_ENGINE": "x"}, "HIGHWIRE_ENGINE='x' is not a value of --engine"),
        (["a:b", "--static-path-mount", "/no/such"], {}, "there is no folder '/no/such'"),
        (["a:b", "--static-path-route", "/a"], {}, "--static-path-route needs --static-path-mount"),
        (["a:b", "--static-path-mount", "/", "--static-path-route", "a"], {}, "'a' is not a path below /"),
        (["a:b", "--static-path-mount", "/", "--static-path-route", "/a/{b}"], {}, "'/a/{b}' is not a path below /"),
        (["a:b", "--bind", "a:²"], {}, "not 'a:²'"),
        (["a:b", "--static-path-mount", "/", "--static-path-mount", "/"], {}, "must be given equally often"),
    ],
)
def test_wrong_options_are_told_in_one_line(arguments, environment, text):
    ended = command(*arguments, **environment)
    assert ended.returncode == 2
    assert text in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_environment_variables_are_options():
    environment = {"HIGHWIRE_PORT": "81", "HIGHWIRE_FACTORY": "true", "HIGHWIRE_WS_DEFLATE": "0", "WEB_CONCURRENCY": "3"}
    options = parse(["a:b", "--host", "::1"], environment)
    assert (options.port, options.factory, options.ws_deflate, options.workers) == (81, True, False, 3)
    assert options.binds() == ["[::1]:81"]
    assert parse(["a:b", "--port", "82"], environment).port == 82


@pytest.mark.parametrize(
    ("app", "text"),
    [
        ("nosuch:app", "there is no module 'nosuch'"),
        ("hello:nosuch", "the module 'hello' has no attribute 'nosuch'"),
        ("hello:TEXT", "is of type bytes, which cannot be called"),
        ("hello:make", "'hello:make' takes no arguments, so it is no application; if it returns the application, use --factory"),
        ("app/main.py", "'app/main.py' is the name of a file; give the application as app.main:app"),
        ("hello.py:make", "give the application as hello:make"),
        ("broken", "SyntaxError"),
        ("imports", "No module named 'not_installed'"),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_application_that_cannot_be_imported(folder, app, text, workers):
    (folder / "broken.py").write_text("def app(:")
    (folder / "imports.py").write_text("import not_installed")
    ended = command(app, "--port", "0", "--workers", workers, folder=folder)
    assert ended.returncode == CANNOT_SERVE
    assert text in ended.stderr


def test_a_lifespan_that_fails(folder):
    (folder / "fails.py").write_text(
        "async def app(scope, receive, send):\n"
        "    await receive()\n"
        "    await send({'type': 'lifespan.startup.failed', 'message': 'no database'})\n"
    )
    ended = command("fails:app", "--port", "0", folder=folder)
    assert ended.returncode == CANNOT_SERVE
    assert "no database" in ended.stderr
    (folder / "raises.py").write_text("async def app(scope, receive, send):\n    raise ValueError('broken')\n")
    ended = command("raises:app", "--port", "0", "--lifespan", "on", folder=folder)
    assert ended.returncode == CANNOT_SERVE
    assert "ValueError: broken" in ended.stderr


def test_an_address_that_is_taken(start, folder):
    server = start("hello:app", folder=folder)
    for workers in ("1", "2"):
        ended = command("hello:app", "--port", str(server.port), "--workers", workers, folder=folder)
        assert ended.returncode == CANNOT_SERVE
        assert f"127.0.0.1:{server.port}" in ended.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_signals_end_it(start, folder, number, workers):
    server = start("hello:app", "--workers", workers, folder=folder)
    server.wait_for("listening on", int(workers))
    assert "hello" in get(server)
    server.process.send_signal(number)
    assert server.process.wait(20) == 0


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_request_in_progress_is_finished_at_the_end(start, workers, number):
    """Terminals and service managers send a signal to all processes."""
    server = start("conformance_app:app", "--workers", workers)
    server.wait_for("listening on", int(workers))
    connection = server.connect()
    connection.sendall(b"GET /sleeps HTTP/1.1\r\nHost: a\r\n\r\n")
    server.wait_for("the handler sleeps")
    for process in server.processes():
        os.kill(process, number)
    received = b""
    while chunk := connection.recv(10_000):
        received += chunk
    assert received.endswith(b"slept")
    assert server.process.wait(20) == 0


def test_a_second_signal_cuts_the_processes(start):
    server = start("conformance_app:app", "--workers", "2")
    server.wait_for("listening on", 2)
    connection = server.connect()
    connection.sendall(b"GET /waits-for-disconnect HTTP/1.1\r\nHost: a\r\n\r\n")
    server.process.terminate()
    server.wait_for("stopping: ", 2)
    server.process.terminate()
    assert server.process.wait(10) == 0
    assert "are cut" in server.log
    connection.close()


def test_a_request_that_does_not_end_is_cut_after_the_graceful_timeout(start):
    server = start("conformance_app:app", "--timeout-graceful-shutdown", "0.3")
    connection = server.connect()
    connection.sendall(b"GET /stream-until-gone HTTP/1.1\r\nHost: a\r\n\r\n")
    assert connection.recv(100)
    server.process.terminate()
    assert server.process.wait(20) == 0
    connection.close()


LIFESPAN = """
import asyncio

async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await receive()
        if STARTS:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        print("it hangs", flush=True)
        await asyncio.sleep(1000)
"""


def test_a_start_that_hangs_can_be_stopped(start, tmp_path):
    (tmp_path / "hangs.py").write_text(LIFESPAN + "STARTS = False")
    server = start("hangs:app", folder=tmp_path, wait="it hangs")
    assert server.stop() == 0
    assert "stopped before the application has started" in server.log


def test_a_shutdown_that_hangs_is_cancelled(start, tmp_path):
    (tmp_path / "hangs.py").write_text(LIFESPAN + "STARTS = True")
    server = start("hangs:app", "--timeout-graceful-shutdown", "0.5", folder=tmp_path)
    assert server.stop() == 0
    assert "the application's shutdown takes longer than 1 s, and is cancelled" in server.log


def test_work_after_a_response_is_done_before_the_end(start):
    server = start("conformance_app:app")
    assert get(server, "/works-after") == "begun"
    assert server.stop() == 0
    assert "the work is done" in server.log
    assert "stopped after 1 requests" in server.log


def test_work_after_a_response_is_cut_after_the_graceful_timeout(start):
    server = start("conformance_app:app", "--timeout-graceful-shutdown", "0.2")
    assert get(server, "/works-after") == "begun"
    assert server.stop() == 0
    assert "the work is done" not in server.log
    assert "0 connections are cut, and 1 tasks of the application are not waited for" in server.log


def test_a_second_signal_does_not_wait_for_a_wsgi_response(start):
    server = start("wsgi_app:app", "--interface", "wsgi")
    connection = server.connect()
    connection.sendall(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("stopping: 1 connections")
    begun = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - begun < 10
    connection.close()


def test_the_access_log(start, folder):
    server = start("hello:app", "--access-log", folder=folder)
    get(server, "/path?q=1")
    server.wait_for('- "GET /path?q=1 HTTP/1.1" 200')
    connection = server.connect()
    connection.sendall(b"nonsense\r\n\r\n")
    connection.recv(100)
    connection.close()
    get(server)
    server.wait_for('- "GET / HTTP/1.1" 200')
    assert "INFO" in server.log


def test_logging_is_set_up_from_a_file(start, folder):
    config = {"version": 1, "formatters": {"own": {"format": "own %(name)s %(args)s"}},
              "handlers": {"all": {"class": "logging.StreamHandler", "formatter": "own"}},
              "root": {"handlers": ["all"], "level": "INFO"}}  # fmt: skip
    (folder / "log.json").write_text(json.dumps(config))
    server = start("hello:app", "--access-log", "--log-config", str(folder / "log.json"), folder=folder, wait="own ")
    get(server)
    server.wait_for("own highwire.access {")
    assert "'status': 200" in server.log
    (folder / "log.json").write_text("{")
    ended = command("hello:app", "--log-config", "log.json", folder=folder)
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1)
    assert "--log-config: log.json: Expecting property name" in ended.stderr


def test_variables_come_from_a_file(start, folder):
    pytest.importorskip("dotenv")
    (folder / "variables").write_text("GREETING=from the file\n")
    (folder / "hello.py").write_text(HELLO.replace('b"hello"', 'os.environ["GREETING"].encode()'))
    assert "from the file" in get(start("hello:app", "--env-file", str(folder / "variables"), folder=folder))



PROXIED = """
async def app(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": f"{scope['scheme']} {scope['client'][0]} {scope['client'][1] == 0}".encode()})

def wsgi(environ, start_response):
    start_response("200 OK", [])
    return [f"{environ['wsgi.url_scheme']} {environ['REMOTE_ADDR']}".encode()]
"""


@pytest.mark.parametrize(
    ("arguments", "fields", "expected"),
    [
        ([], {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}, "https 192.0.2.1 True"),
        ([], {"X-Forwarded-For": "198.51.100.7, 192.0.2.1"}, "http 192.0.2.1 True"),
        ([], {"X-Forwarded-Proto": "https"}, "https 127.0.0.1 False"),
        ([], {}, "http 127.0.0.1 False"),
        (["--no-proxy-headers"], {"X-Forwarded-For": "192.0.2.1"}, "http 127.0.0.1 False"),
        (["--forwarded-allow-ips", "10.0.0.0/8"], {"X-Forwarded-For": "192.0.2.1"}, "http 127.0.0.1 False"),
        (["--forwarded-allow-ips", "127.0.0.0/8,192.0.2.1"], {"X-Forwarded-For": "198.51.100.7, 192.0.2.1"},
         "http 198.51.100.7 True"),
        (["--forwarded-allow-ips", "*"], {"X-Forwarded-For": "198.51.100.7, 192.0.2.1"}, "http 198.51.100.7 True"),
    ],
)  # fmt: skip
def test_trusted_proxies_tell_client_and_scheme(start, tmp_path, arguments, fields, expected):
    (tmp_path / "proxied.py").write_text(PROXIED)
    for app in ("app", "wsgi"):
        server = start(f"proxied:{app}", *arguments, "--lifespan", "off", folder=tmp_path)
        answer = httpx.get(server.url, headers=fields, trust_env=False).text
        assert answer == (expected if app == "app" else " ".join(expected.split()[:2]))
        server.stop()


def test_a_wrong_list_of_proxies(folder):
    ended = command("hello:app", "--port", "0", "--forwarded-allow-ips", "10.0.0", folder=folder)
    assert ended.returncode == CANNOT_SERVE
    assert "`10.0.0` is not a network" in ended.stderr


def test_a_factory_a_unix_socket_and_no_server_field(start, folder, tmp_path):
    path = tmp_path / "socket"
    start("hello:make", "--factory", "--uds", str(path), "--no-server-header", folder=folder)
    transport = httpx.HTTPTransport(uds=str(path))
    with httpx.Client(transport=transport, base_url="http://a") as client:
        response = client.get("/")
    assert response.text.endswith("hello")
    assert "server" not in response.headers


def test_tls(start, folder, tmp_path):
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(chain)],
        check=True, capture_output=True,
    )  # fmt: skip
    server = start("conformance_app:app", "--ssl-certfile", str(chain), "--ssl-keyfile", str(key))
    context = ssl.create_default_context(cafile=str(chain))
    with httpx.Client(verify=context, http2=True, base_url=f"https://127.0.0.1:{server.port}", trust_env=False) as client:
        response = client.get("/scope")
    assert response.http_version == "HTTP/2"
    assert response.json()["scheme"] == "https"
    facts = response.json()["extensions"]["tls"]
    assert (facts["tls_version"], facts["cipher_suite"] in (0x1301, 0x1302, 0x1303)) == (0x0304, True)
    assert (facts["client_cert_chain"], facts["client_cert_name"]) == ([], None)
    ended = command("conformance_app:app", "--ssl-certfile", str(key), "--port", "0", folder=Path(__file__).parent)
    assert ended.returncode == CANNOT_SERVE
    assert "certificate" in ended.stderr


@pytest.mark.parametrize("rule", [None, "optional", "none"])
def test_certificates_of_clients(start, tmp_path, rule):
    files = {}
    for name in ("server", "client"):
        files[name] = (tmp_path / f"{name}.pem", tmp_path / f"{name}.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
             "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE",
             "-keyout", str(files[name][1]), "-out", str(files[name][0])],
            check=True, capture_output=True,
        )  # fmt: skip
    arguments = ["--ssl-certfile", str(files["server"][0]), "--ssl-keyfile", str(files["server"][1]),
                 "--ssl-ca-certs", str(files["client"][0]), *(["--ssl-cert-reqs", rule] if rule else [])]  # fmt: skip
    server = start("conformance_app:app", *arguments)
    for has_certificate in (True, False):
        context = ssl.create_default_context(cafile=str(files["server"][0]))
        if has_certificate:
            context.load_cert_chain(*map(str, files["client"]))
        with httpx.Client(verify=context, base_url=f"https://127.0.0.1:{server.port}", trust_env=False) as client:
            if rule is None and not has_certificate:
                with pytest.raises(httpx.TransportError):
                    client.get("/scope")
                continue
            facts = client.get("/scope").json()["extensions"]["tls"]
        is_told = has_certificate and rule != "none"
        assert facts["client_cert_name"] == ("CN=client" if is_told else None)
        assert facts["client_cert_chain"] == ([files["client"][0].read_text()] if is_told else [])


def test_processes_are_replaced_on_hangup_without_a_lost_request(start, folder):
    server = start("hello:app", "--workers", "2", folder=folder)
    server.wait_for("serves", 2)
    seen = set()
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        for round in range(200):
            if round == 50:
                (folder / "hello.py").write_text(HELLO.replace("hello", "changed"))
                server.process.send_signal(signal.SIGHUP)
            response = client.get("/", headers={"Connection": "close"})
            assert response.status_code == 200
            seen.add(response.text)
        server.wait_for("serves", 4)
        until = time.monotonic() + 20
        while "hello" in client.get("/", headers={"Connection": "close"}).text:
            assert time.monotonic() < until
    assert any("hello" in text for text in seen)


def test_a_process_that_dies_is_started_again(start, folder):
    server = start("hello:app", "--workers", "2", folder=folder)
    server.wait_for("serves", 2)
    os.kill(int(get(server).split()[0]), signal.SIGKILL)
    server.wait_for("has ended with the status -9")
    server.wait_for("serves", 3)
    assert "hello" in get(server)


def test_a_process_is_replaced_after_its_requests(start, folder):
    server = start("hello:app", "--limit-max-requests", "20", folder=folder)
    server.wait_for("serves")
    first = get(server).split()[0]
    until = time.monotonic() + 20
    while get(server).split()[0] == first:
        assert time.monotonic() < until
    assert server.stop() == 0


def test_a_process_is_replaced_after_its_lifetime(start, folder):
    server = start("hello:app", "--workers-lifetime", "0.5", folder=folder)
    server.wait_for("is to be replaced", 2)
    server.wait_for("serves", 3)
    assert "hello" in get(server)
    assert server.stop() == 0


def test_a_hangup_while_a_replacement_starts_is_not_lost(start, folder):
    slow = HELLO + "import time\nprint('importing', flush=True)\ntime.sleep(1)\n"
    server = start("hello:app", "--workers-lifetime", "1000", folder=folder)
    server.wait_for("serves")
    (folder / "hello.py").write_text(slow.replace('b"hello"', 'b"second"'))
    server.process.send_signal(signal.SIGHUP)
    server.wait_for("importing")
    (folder / "hello.py").write_text(HELLO.replace('b"hello"', 'b"third"'))
    os.utime(folder / "hello.py", (time.time() + 10, time.time() + 10))
    server.process.send_signal(signal.SIGHUP)
    until = time.monotonic() + 20
    while not get(server).endswith("third"):
        assert time.monotonic() < until
    assert server.stop() == 0


def test_reload_waits_for_a_change_that_mends_the_application(start, folder):
    pytest.importorskip("watchfiles")
    (folder / "hello.py").write_text("def app(:")
    server = start("hello:app", "--reload", folder=folder, wait="waiting for a change")
    until = time.monotonic() + 20
    while "listening on" not in server.log:
        assert time.monotonic() < until and server.process.poll() is None
        (folder / "hello.py").write_text(HELLO + f"# {time.monotonic()}\n")
        try:
            server.process.wait(0.3)
        except subprocess.TimeoutExpired:
            continue
    assert get(server).endswith("hello")


def test_reload(start, folder):
    pytest.importorskip("watchfiles")
    server = start("hello:app", "--reload", folder=folder)
    server.wait_for("serves")
    assert get(server).endswith("hello")
    until = time.monotonic() + 20
    while not get(server).endswith("changed"):
        assert time.monotonic() < until
        # The watcher may not have begun, so the file is changed again.
        (folder / "hello.py").write_text(HELLO.replace("hello", "changed") + f"# {time.monotonic()}\n")
        server.wait_for("serves")


BLOCKS = """
import os, time

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/blocks":
        open("begun", "w").close()
        while not os.path.exists("go-on"):
            time.sleep(0.01)
    start_response("200 OK", [])
    return [b"%d" % os.getpid()]
"""


@pytest.mark.parametrize("engine", ["uring", "readiness"])
def test_a_process_that_runs_a_long_request_leaves_connections_to_the_others(start, tmp_path, engine):
    (tmp_path / "blocks.py").write_text(BLOCKS)
    server = start("blocks:app", "--workers", "2", "--engine", engine, folder=tmp_path)
    server.wait_for("listening on", count=2)
    with ThreadPoolExecutor(1) as pool:
        blocked = pool.submit(get, server, "/blocks")
        try:
            while not (tmp_path / "begun").exists():
                assert not blocked.done()
                time.sleep(0.01)
            others = {get(server) for _ in range(20)}
        finally:
            (tmp_path / "go-on").touch()
        assert len(others) == 1 and blocked.result() not in others


STUCK = """
import asyncio, time

async def app(scope, receive, send):
    if scope["type"] == "http":
        open("begun", "w").close()
        await asyncio.to_thread(time.sleep, 60)
"""


def test_a_process_ends_although_a_thread_of_the_application_goes_on(start, tmp_path):
    (tmp_path / "stuck.py").write_text(STUCK)
    server = start("stuck:app", "--timeout-graceful-shutdown", "0.2", "--lifespan", "off", folder=tmp_path)
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(get, server)
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        server.process.terminate()
        assert server.process.wait(20) == 1
        assert request.exception() is not None
    assert "1 connections are cut, and 1 tasks" in server.log
    assert "Timeout" in server.log and "in app" not in server.log.split("Thread")[0]


def test_run_takes_the_name_of_an_application_and_tells_what_it_does_not_know(tmp_path):
    def run(arguments: str) -> subprocess.CompletedProcess:
        code = f"import highwire_server; highwire_server.run({arguments})"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=30)

    (tmp_path / "ends.py").write_text(
        "import os, signal\n\nasync def app(scope, receive, send):\n    await receive()\n"
        "    await send({'type': 'lifespan.startup.complete'})\n    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    await receive()\n    print('ended')\n    await send({'type': 'lifespan.shutdown.complete'})\n"
    )
    assert run("'ends:app', bind='127.0.0.1:0'").stdout == "ended\n"
    assert "run() has no setting 'workers'; the command highwire-server has processes" in run("'ends:app', workers=2").stderr
    assert "run() has no setting 'port'; give bind='HOST:PORT'" in run("'ends:app', port=2").stderr
