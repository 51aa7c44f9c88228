//! The table of scenarios, and the servers that take part in them.
//!
//! The table of a scenario compares all its servers with the first one. If possible, the first server is the floor, a
//! program that makes the same system calls and parses nothing. The first server also runs a second time, as
//! `NAME again`. Differences smaller than that between its two runs are noise.

/// A scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// A name by which several scenarios can be chosen together.
    pub(super) group: &'static str,
    pub(super) what: &'static str,
    pub(super) load: Load,
    pub(super) path: &'static str,
    pub(super) entrants: &'static [Entrant],
}

/// The actions of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Every connection keeps `depth` requests in flight.
    Closed { connections: u32, depth: u32, headers: bool },
    /// Every connection keeps one request in flight, with this file as its body.
    Post { connections: u32, file: &'static str },
    /// Every connection is a WebSocket and keeps one message of this many bytes in flight, which the server sends back.
    Echo { connections: u32, bytes: u32 },
    /// ApacheBench, with these options before the address.
    Ab(&'static str),
    /// h2load, with these options before the address. It uses HTTP/2, or HTTP/1.1 if `--h1` is one of the options.
    H2load { options: &'static str, tls: bool },
    /// openssl, which sends one request per connection, with a full handshake or a resumed session for each.
    Handshakes { resumed: bool },
    /// curl, which makes one download by HTTP/1.1 or HTTP/2.
    Download { version: &'static str },
    /// Requests at a constant rate, which is in turn each of these percentages of the slowest server's peak. Latency
    /// counts from when a request was due.
    Rate { connections: u32, percents: &'static [u32] },
    /// Idle connections that were each served once. Measures the growth of memory after the connections of a warm-up.
    Idle { connections: u32, warm_up: u32, protocol: Protocol },
    /// curl, which makes one upload of this many bytes. Measures the server's peak memory.
    Upload { bytes: u64 },
    /// Clients that read a long answer slowly. Measures the server's peak memory.
    SlowReaders { connections: u32 },
}

/// The protocol of the clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http1Tls,
    Http2Tls,
}

/// A server that takes part in scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entrant {
    FloorUring,
    FloorEpoll,
    /// The epoll floor that closes each connection after one answer.
    FloorEpollOnce,
    /// The floor of WebSockets, which only unmasks.
    FloorWs,
    /// The floor for long messages, which sends each received part on at once.
    FloorWsStream,
    Highwire(Engine),
    HighwireTls(Engine),
    /// Serves the same files as `NginxFiles`.
    HighwireFiles(Engine),
    /// h2o from Debian, with a configuration from bench/peers.
    H2o,
    H2oTls,
    /// nginx from Debian, with a configuration from bench/peers.
    NginxTls,
    NginxFiles,
    /// A program from bench/peers.
    Ntex,
    /// A program from bench/peers.
    Axum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Uring,
    Readiness,
}

use Engine::{Readiness, Uring};
use Entrant::{
    Axum, FloorEpoll, FloorEpollOnce, FloorUring, FloorWs, FloorWsStream, H2o, H2oTls, Highwire, HighwireFiles,
    HighwireTls, NginxFiles, NginxTls, Ntex,
};

const URING: &[Entrant] = &[FloorUring, Highwire(Uring)];
const WEBSOCKET: &[Entrant] = &[FloorWs, Highwire(Uring), Highwire(Readiness)];
const WEBSOCKET_LONG: &[Entrant] = &[FloorWsStream, Highwire(Uring), Highwire(Readiness)];
const READINESS: &[Entrant] = &[FloorEpoll, Highwire(Readiness)];
const BOTH: &[Entrant] = &[FloorEpoll, Highwire(Readiness), Highwire(Uring)];
/// For clients that cannot use the fixed answer of the floors.
const NO_FLOOR: &[Entrant] = &[Highwire(Readiness), Highwire(Uring)];

const FILES: &[Entrant] = &[NginxFiles, HighwireFiles(Uring), HighwireFiles(Readiness)];

const H2: &[Entrant] = &[H2o, Highwire(Uring), Highwire(Readiness)];
const H2_TLS: &[Entrant] = &[H2oTls, HighwireTls(Uring), HighwireTls(Readiness)];
const NGINX_TLS: &[Entrant] = &[NginxTls, HighwireTls(Uring), HighwireTls(Readiness)];

/// Returns a scenario with 64 connections, which keep server and generator busy if `depth` is large. With a `depth` of
/// 1, each side often waits for the other, and figures vary threefold between rounds. The scenarios `light512` avoid
/// that with 512 connections.
const fn pipelined(name: &'static str, depth: u32, headers: bool) -> Scenario {
    let what = if headers {
        "64 connections, N requests in flight on each (N is in the name), with three additional headers"
    } else {
        "64 connections, N requests in flight on each (N is in the name)"
    };
    Scenario {
        name,
        group: "pipe1..128",
        what,
        load: Load::Closed { connections: 64, depth, headers },
        path: "/hello",
        entrants: BOTH,
    }
}

const fn alone(
    name: &'static str,
    what: &'static str,
    load: Load,
    path: &'static str,
    entrants: &'static [Entrant],
) -> Scenario {
    Scenario { name, group: name, what, load, path, entrants }
}

/// h2load's options with the header fields that a browser sends.
const BROWSER: &str = "-n 400000 -c 16 -m 32 -H sec-ch-ua:\"Chromium\";v=\"130\",\"Not?A_Brand\";v=\"99\" \
    -H sec-ch-ua-mobile:?0 -H sec-ch-ua-platform:\"Linux\" -H upgrade-insecure-requests:1 \
    -H accept:text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8 \
    -H sec-fetch-site:none -H sec-fetch-mode:navigate -H sec-fetch-dest:document \
    -H accept-encoding:gzip,deflate,br,zstd -H accept-language:en-US,en;q=0.9,de;q=0.8 \
    -H cookie:session=0123456789abcdef0123456789abcdef";

/// The path of downloads. Highwire generates the bytes; nginx has a file of this name and size.
const DOWNLOAD: &str = "/stream?bytes=1000000000";
const DOWNLOAD_H1: &str =
    "one download of a gigabyte by HTTP/1.1 under TLS, after one that is not measured; nginx sends a cached file";
const DOWNLOAD_H2: &str =
    "one download of a gigabyte by HTTP/2 under TLS, after one that is not measured; nginx sends a cached file";

pub(super) const SCENARIOS: &[Scenario] = &[
    alone(
        "light512-uring",
        "512 connections, one small request in flight on each, through io_uring",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/hello",
        URING,
    ),
    alone(
        "light512-readiness",
        "512 connections, one small request in flight on each, through epoll",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/hello",
        READINESS,
    ),
    alone(
        "pipe64x32-uring",
        "64 connections, 32 requests in flight on each, through io_uring",
        Load::Closed { connections: 64, depth: 32, headers: false },
        "/hello",
        URING,
    ),
    alone(
        "pipe64x32-readiness",
        "64 connections, 32 requests in flight on each, through epoll",
        Load::Closed { connections: 64, depth: 32, headers: false },
        "/hello",
        READINESS,
    ),
    alone(
        "close",
        "one request per connection: ab uses HTTP/1.0, so the server closes",
        Load::Ab("-q -c 64 -n 40000"),
        "/hello",
        &[FloorEpollOnce, Highwire(Readiness), Highwire(Uring)],
    ),
    alone(
        "ws-echo-16",
        "512 WebSockets, one text of 16 bytes in flight on each, which the server sends back; compare with \
         `light512-uring`",
        Load::Echo { connections: 512, bytes: 16 },
        "/ws",
        WEBSOCKET,
    ),
    alone(
        "ws-echo-2k",
        "512 WebSockets, one text of 2 KiB in flight on each, which the server sends back",
        Load::Echo { connections: 512, bytes: 2048 },
        "/ws",
        WEBSOCKET,
    ),
    alone(
        "ws-echo-16k",
        "64 WebSockets, one binary message of 16 KiB in flight on each, which the server sends back",
        Load::Echo { connections: 64, bytes: 16 * 1024 },
        "/ws",
        WEBSOCKET_LONG,
    ),
    alone(
        "ws-echo-1m",
        "16 WebSockets, one binary message of 1 MiB in flight on each, which the server sends back",
        Load::Echo { connections: 16, bytes: 1024 * 1024 },
        "/ws",
        WEBSOCKET_LONG,
    ),
    pipelined("pipe1", 1, false),
    pipelined("pipe2", 2, false),
    pipelined("pipe4", 4, false),
    pipelined("pipe8", 8, false),
    pipelined("pipe16", 16, false),
    pipelined("pipe32", 32, false),
    pipelined("pipe64", 64, false),
    pipelined("pipe128", 128, false),
    pipelined("pipe1-headers", 1, true),
    pipelined("pipe2-headers", 2, true),
    pipelined("pipe4-headers", 4, true),
    pipelined("pipe8-headers", 8, true),
    pipelined("pipe16-headers", 16, true),
    pipelined("pipe32-headers", 32, true),
    pipelined("pipe64-headers", 64, true),
    pipelined("pipe128-headers", 128, true),
    alone(
        "rate",
        "256 connections, requests at a constant rate; latency counts from when a request was due, not from when it \
         could be sent",
        Load::Rate { connections: 256, percents: &[50, 80] },
        "/hello",
        BOTH,
    ),
    alone(
        "ab-keepalive",
        "ab -k with 200 connections. No floor: ab -k needs `Connection: keep-alive` in each answer, which the floor \
         does not send",
        Load::Ab("-q -k -c 200 -n 100000"),
        "/hello",
        NO_FLOOR,
    ),
    alone(
        "ab-close",
        "ab with 200 connections at a time, one request per connection",
        Load::Ab("-q -c 200 -n 50000"),
        "/hello",
        &[FloorEpollOnce, Highwire(Readiness), Highwire(Uring)],
    ),
    alone(
        "echo20",
        "20 connections; the query parsed and answered as JSON. The floor answers its canned 13 bytes",
        Load::Closed { connections: 20, depth: 1, headers: false },
        "/echo?hello=world",
        BOTH,
    ),
    alone(
        "echo200",
        "200 connections; the query parsed and answered as JSON. The floor answers its canned 13 bytes",
        Load::Closed { connections: 200, depth: 1, headers: false },
        "/echo?hello=world",
        BOTH,
    ),
    alone(
        "tiny10k",
        "10,000 connections, all established before the clock starts. The answer is the 13 bytes of /hello",
        Load::Closed { connections: 10_000, depth: 1, headers: false },
        "/hello",
        BOTH,
    ),
    alone(
        "hello512",
        "512 connections, one small request in flight on each, for comparison with `echo512`",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/hello",
        &[Ntex, Highwire(Uring), Highwire(Readiness)],
    ),
    alone(
        "echo512",
        "512 connections; the query parsed and answered as JSON",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/echo?hello=world",
        &[Ntex, Highwire(Uring), Highwire(Readiness)],
    ),
    alone(
        "json512",
        "512 connections; a kilobyte of JSON posted, parsed to a value of any shape, and answered with that value as \
         JSON",
        Load::Post { connections: 512, file: "bench/scripts/order.json" },
        "/json",
        &[Axum, Highwire(Uring), Highwire(Readiness)],
    ),
    alone(
        "static-1k",
        "512 connections; a file of 1 KiB; nginx uses sendfile and open_file_cache",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/1k.txt",
        FILES,
    ),
    alone(
        "static-100k",
        "64 connections; a file of 100 KB; nginx uses sendfile and open_file_cache",
        Load::Closed { connections: 64, depth: 1, headers: false },
        "/100k.bin",
        FILES,
    ),
    alone(
        "static-10m",
        "16 connections; a file of 10 MB; nginx uses sendfile and open_file_cache",
        Load::Closed { connections: 16, depth: 1, headers: false },
        "/10m.bin",
        FILES,
    ),
    alone(
        "upload",
        "one upload of 10 GiB, hashed as it arrives; the server's peak resident memory",
        Load::Upload { bytes: 10 << 30 },
        "/upload",
        NO_FLOOR,
    ),
    alone(
        "slow-readers",
        "1,000 clients, each of which reads 4 KiB every 100 ms of an answer of 100 MB; the server's peak resident \
         memory",
        Load::SlowReaders { connections: 1000 },
        "/stream?bytes=100000000",
        NO_FLOOR,
    ),
    alone(
        "h2-16x32",
        "HTTP/2 without TLS, 16 connections with 32 streams each. h2load uses more CPU than any of these servers",
        Load::H2load { options: "-n 400000 -c 16 -m 32", tls: false },
        "/hello",
        H2,
    ),
    alone(
        "h2-1x100",
        "HTTP/2 without TLS, one connection with 100 streams",
        Load::H2load { options: "-n 400000 -c 1 -m 100", tls: false },
        "/hello",
        H2,
    ),
    alone(
        "h2-headers",
        "HTTP/2 without TLS, 16 connections with 32 streams each, and the fields that a browser sends",
        Load::H2load { options: BROWSER, tls: false },
        "/hello",
        H2,
    ),
    alone(
        "h2-tls",
        "HTTP/2 under TLS, 16 connections with 32 streams each",
        Load::H2load { options: "-n 400000 -c 16 -m 32", tls: true },
        "/hello",
        H2_TLS,
    ),
    alone(
        "h1-tls",
        "HTTP/1.1 under TLS, 512 connections, one request in flight on each",
        Load::H2load { options: "--h1 -n 200000 -c 512 -m 1", tls: true },
        "/hello",
        NGINX_TLS,
    ),
    alone(
        "tls-handshake",
        "one request per connection, each with a full handshake: TLS 1.3, X25519, an ECDSA P-256 certificate",
        Load::Handshakes { resumed: false },
        "/hello",
        NGINX_TLS,
    ),
    alone(
        "tls-resumed",
        "one request per connection, each with a resumed session: TLS 1.3, X25519",
        Load::Handshakes { resumed: true },
        "/hello",
        NGINX_TLS,
    ),
    alone("tls-download-h1", DOWNLOAD_H1, Load::Download { version: "1.1" }, DOWNLOAD, NGINX_TLS),
    alone("tls-download-h2", DOWNLOAD_H2, Load::Download { version: "2" }, DOWNLOAD, NGINX_TLS),
    alone(
        "idle-memory",
        "10,000 keep-alive connections that were each served once; growth of the server's resident memory with 100 \
         others open, without the kernel's memory for sockets",
        Load::Idle { connections: 10_000, warm_up: 100, protocol: Protocol::Http1 },
        "/hello",
        BOTH,
    ),
    alone(
        "tls-idle-h1",
        "1,000 connections under TLS that were each served once by HTTP/1.1; growth of the resident memory with 100 \
         others open",
        Load::Idle { connections: 1000, warm_up: 100, protocol: Protocol::Http1Tls },
        "/hello",
        NGINX_TLS,
    ),
    alone(
        "tls-idle-h2",
        "1,000 connections under TLS that were each served once by HTTP/2; growth of the resident memory with 100 \
         others open",
        Load::Idle { connections: 1000, warm_up: 100, protocol: Protocol::Http2Tls },
        "/hello",
        NGINX_TLS,
    ),
];

/// A server's command line, with `PORT` in place of its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) name: String,
    /// The program and its arguments.
    pub(super) command: Vec<String>,
    /// The CPUs that it may use, as an argument of taskset. `None` allows all.
    pub(super) cpus: Option<String>,
}

impl Server {
    pub(super) fn new(name: &str, command: &str, cpus: Option<&str>) -> Self {
        Self {
            name: name.to_owned(),
            command: command.split(' ').map(str::to_owned).collect(),
            cpus: cpus.map(str::to_owned),
        }
    }

    /// Returns the command line with this port.
    pub(super) fn line(&self, port: u16) -> Vec<String> {
        self.command.iter().map(|word| word.replace("PORT", &port.to_string())).collect()
    }
}

/// The CPU of measured servers. The generator uses the last CPU.
const SERVER_CPU: Option<&str> = Some("0");

impl Entrant {
    /// Returns the peer that `prepare` must build or install for this server, if any.
    pub(super) fn peer(&self) -> Option<&'static str> {
        match self {
            Ntex => Some("ntex"),
            Axum => Some("axum"),
            NginxFiles => Some("nginx"),
            _ => None,
        }
    }

    pub(super) fn server(self) -> Server {
        match self {
            FloorUring => Server::new("floor (io_uring)", "bench/bin/floor_uring PORT", SERVER_CPU),
            FloorEpoll => Server::new("floor (epoll)", "bench/bin/floor_epoll PORT", SERVER_CPU),
            FloorEpollOnce => Server::new("floor (epoll, closing)", "bench/bin/floor_epoll PORT once", SERVER_CPU),
            FloorWs => Server::new("floor (WebSocket)", "bench/bin/floor_ws PORT", SERVER_CPU),
            FloorWsStream => Server::new("floor (WebSocket, parts)", "bench/bin/floor_ws_stream PORT", SERVER_CPU),
            H2o => Server::new("h2o", "h2o -c DIR/h2o.conf", SERVER_CPU),
            H2oTls => Server::new("h2o-tls", "h2o -c DIR/h2o-tls.conf", SERVER_CPU),
            NginxTls => Server::new("nginx-tls", "nginx -e stderr -p DIR -c DIR/nginx-tls.conf", SERVER_CPU),
            NginxFiles => Server::new("nginx-files", "nginx -e stderr -p DIR -c DIR/nginx-files.conf", SERVER_CPU),
            Ntex => peer("ntex"),
            Axum => peer("axum"),
            HighwireFiles(engine) => Server::new(
                &format!("highwire-files ({})", engine.name()),
                &format!(
                    "target/release/highwire serve DIR/www --listen 127.0.0.1:PORT --workers 1 --engine {}",
                    engine.name()
                ),
                SERVER_CPU,
            ),
            HighwireTls(engine) => Server::new(
                &format!("highwire-tls ({})", engine.name()),
                &format!(
                    "target/release/highwire demo --tls-listen 127.0.0.1:PORT --tls-self-signed --workers 1 --engine {}",
                    engine.name()
                ),
                SERVER_CPU,
            ),
            Highwire(engine) => Server::new(
                &format!("highwire ({})", engine.name()),
                &format!("target/release/highwire demo --listen 127.0.0.1:PORT --workers 1 --engine {}", engine.name()),
                SERVER_CPU,
            ),
        }
    }
}

impl Engine {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Readiness => "readiness",
        }
    }
}

/// Returns another server by name: nginx with its configuration template, or a program of bench/peers.
pub(super) fn peer(name: &str) -> Server {
    match name {
        "nginx" => Server::new("nginx", "nginx -e stderr -p DIR -c DIR/nginx.conf", SERVER_CPU),
        name => Server::new(name, &format!("bench/peers/target/release/peer-{name} PORT"), SERVER_CPU),
    }
}

/// The servers to compare Highwire with.
pub(super) enum Rivals<'n> {
    /// The floors and peers of the scenario, and these peers.
    Peers(&'n [String]),
    /// Another build of the program `highwire`.
    Build(String),
}

/// The program that the tables measure.
const OURS: &str = "target/release/highwire";

/// Returns the servers of a scenario in order. With peers, these are the first server, the first server again, the
/// other servers, and the peers. With another build, these are, for each of our servers, that build, that build again,
/// and ours.
pub(super) fn servers(entrants: &[Entrant], rivals: &Rivals<'_>) -> Vec<Server> {
    let mut servers: Vec<Server> = entrants.iter().map(|entrant| entrant.server()).collect();
    let peers = match rivals {
        Rivals::Peers(peers) => peers,
        Rivals::Build(file) => {
            servers.retain(|server| server.command[0] == OURS);
            return servers.into_iter().flat_map(|ours| in_turn(ours, file)).collect();
        }
    };
    if let Some(first) = servers.first().cloned() {
        servers.insert(1, Server { name: format!("{} again", first.name), ..first });
    }
    servers.extend(peers.iter().map(|name| peer(name)));
    servers
}

/// Returns `ours` with the program at `file`, the same a second time, and `ours`.
fn in_turn(ours: Server, file: &str) -> [Server; 3] {
    let other = |name: String| {
        let mut command = ours.command.clone();
        file.clone_into(&mut command[0]);
        Server { name, command, cpus: ours.cpus.clone() }
    };
    [other(format!("{}, other build", ours.name)), other(format!("{}, other build again", ours.name)), ours]
}

/// Returns the scenarios with these names or groups in the order of the table, or all if `names` is empty.
///
/// # Errors
/// Returns the first unknown name.
pub(super) fn chosen(names: &[String]) -> Result<Vec<&'static Scenario>, String> {
    let is = |scenario: &Scenario, name: &str| scenario.name == name || scenario.group == name;
    if let Some(unknown) = names.iter().find(|name| !SCENARIOS.iter().any(|scenario| is(scenario, name))) {
        return Err(unknown.clone());
    }
    Ok(SCENARIOS.iter().filter(|scenario| names.is_empty() || names.iter().any(|name| is(scenario, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tls::{DOWNLOAD_BYTES, DOWNLOAD_FILE};
    use super::*;

    #[test]
    fn scenarios_are_chosen_by_name_and_by_group() {
        for (names, expected) in [
            (&[][..], Ok(SCENARIOS.len())),
            (&["close"], Ok(1)),
            (&["pipe1..128"], Ok(16)),
            (&["pipe1..128", "pipe1", "echo20"], Ok(17)),
            (&["echo21"], Err("echo21".to_owned())),
        ] {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(chosen(&names).map(|scenarios| scenarios.len()), expected, "{names:?}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SCENARIOS.len());
    }

    #[test]
    fn downloads_ask_for_the_file_that_nginx_has() {
        assert_eq!(DOWNLOAD, format!("/{DOWNLOAD_FILE}?bytes={DOWNLOAD_BYTES}"));
    }

    #[test]
    fn the_first_server_runs_twice() {
        let peers = ["hyper".into(), "nginx".into()];
        let names: Vec<String> = servers(URING, &Rivals::Peers(&peers)).into_iter().map(|server| server.name).collect();
        assert_eq!(names, ["floor (io_uring)", "floor (io_uring) again", "highwire (uring)", "hyper", "nginx"]);
    }

    #[test]
    fn another_build_runs_twice_and_ours_once() {
        let servers = servers(URING, &Rivals::Build("/old/highwire".into()));
        let programs: Vec<&str> = servers.iter().map(|server| server.command[0].as_str()).collect();
        assert_eq!(programs, ["/old/highwire", "/old/highwire", OURS]);
        assert!(servers.iter().all(|server| server.command[1..] == servers[0].command[1..]));
    }

    #[test]
    fn the_port_is_put_in() {
        assert_eq!(FloorEpollOnce.server().line(18_101), ["bench/bin/floor_epoll", "18101", "once"]);
        assert!(Highwire(Uring).server().line(18_101).contains(&"127.0.0.1:18101".to_owned()));
    }
}
