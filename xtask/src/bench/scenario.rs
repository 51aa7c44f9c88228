//! What is measured: scenarios as a table, and the servers that take part in them.
//!
//! The first server of a scenario is the one that all are compared with, where there is one its floor: a program that makes the
//! same system calls and parses nothing. It runs a second time as `… again`, and the difference between the two is the spread
//! below which no difference means anything.

/// One scenario.
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Scenarios of one family can be asked for together.
    pub(super) group: &'static str,
    pub(super) what: &'static str,
    pub(super) load: Load,
    pub(super) path: &'static str,
    pub(super) entrants: &'static [Entrant],
}

/// What the clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// Every connection keeps `depth` requests in flight.
    Closed { connections: u32, depth: u32, headers: bool },
    /// Every connection keeps one request in flight, with this file as its body.
    Post { connections: u32, file: &'static str },
    /// ApacheBench, with these options before the address.
    Ab(&'static str),
    /// h2load, with these options before the address: HTTP/2, or with `--h1` HTTP/1.1, in the clear or under TLS.
    H2load { options: &'static str, tls: bool },
    /// openssl: a connection for each request, with a full handshake or with a resumed session.
    Handshakes { resumed: bool },
    /// curl: one download, by HTTP/1.1 or HTTP/2.
    Download { version: &'static str },
    /// A constant rate, at each of these percentages of the slowest entrant's peak; latency from when a request was due.
    Rate { connections: u32, percents: &'static [u32] },
    /// Connections that each were served once and then wait; what memory they hold over what others, the warm-up, hold.
    Idle { connections: u32, warm_up: u32, protocol: Protocol },
    /// curl: one upload of this many bytes; what memory the server needed at most.
    Upload { bytes: u64 },
    /// So many clients that take little at a time of an answer without end; what memory the server needed at most.
    SlowReaders { connections: u32 },
}

/// What clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http1Tls,
    Http2Tls,
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entrant {
    FloorUring,
    FloorEpoll,
    /// Closes after one answer.
    FloorEpollOnce,
    Highwire(Engine),
    HighwireTls(Engine),
    /// Serves the folder that nginx has, too.
    HighwireFiles(Engine),
    /// From Debian; see bench/peers.
    H2o,
    H2oTls,
    NginxTls,
    NginxFiles,
    /// From bench/peers.
    Ntex,
    Axum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Engine {
    Uring,
    Readiness,
}

use Engine::{Readiness, Uring};
use Entrant::{
    Axum, FloorEpoll, FloorEpollOnce, FloorUring, H2o, H2oTls, Highwire, HighwireFiles, HighwireTls, NginxFiles,
    NginxTls, Ntex,
};

const URING: &[Entrant] = &[FloorUring, Highwire(Uring)];
const READINESS: &[Entrant] = &[FloorEpoll, Highwire(Readiness)];
const BOTH: &[Entrant] = &[FloorEpoll, Highwire(Readiness), Highwire(Uring)];
/// For clients that the floors' one canned answer does not serve.
const NO_FLOOR: &[Entrant] = &[Highwire(Readiness), Highwire(Uring)];

const FILES: &[Entrant] = &[NginxFiles, HighwireFiles(Uring), HighwireFiles(Readiness)];

const H2: &[Entrant] = &[H2o, Highwire(Uring), Highwire(Readiness)];
const H2_TLS: &[Entrant] = &[H2oTls, HighwireTls(Uring), HighwireTls(Readiness)];
const NGINX_TLS: &[Entrant] = &[NginxTls, HighwireTls(Uring), HighwireTls(Readiness)];

/// 64 connections keep both sides busy once requests are pipelined; without pipelining it takes 512, or else each side keeps
/// putting the other to sleep and the figures swing threefold from round to round.
const fn pipelined(name: &'static str, depth: u32, headers: bool) -> Scenario {
    let what = if headers {
        "64 connections, so many requests in flight on each, with three headers more to parse"
    } else {
        "64 connections, so many requests in flight on each"
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

/// What a browser sends with each request, beside its method and target.
const BROWSER: &str = "-n 400000 -c 16 -m 32 -H sec-ch-ua:\"Chromium\";v=\"130\",\"Not?A_Brand\";v=\"99\" \
    -H sec-ch-ua-mobile:?0 -H sec-ch-ua-platform:\"Linux\" -H upgrade-insecure-requests:1 \
    -H accept:text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8 \
    -H sec-fetch-site:none -H sec-fetch-mode:navigate -H sec-fetch-dest:document \
    -H accept-encoding:gzip,deflate,br,zstd -H accept-language:en-US,en;q=0.9,de;q=0.8 \
    -H cookie:session=0123456789abcdef0123456789abcdef";

/// Highwire makes what it sends; nginx has a file of this name and size.
const DOWNLOAD: &str = "/stream?bytes=1000000000";
const DOWNLOAD_H1: &str =
    "one download of a gigabyte by HTTP/1.1 under TLS, the second one: of a file in memory by nginx";
const DOWNLOAD_H2: &str =
    "one download of a gigabyte by HTTP/2 under TLS, the second one: of a file in memory by nginx";

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
        "one request a connection: ab speaks HTTP/1.0, so the server closes",
        Load::Ab("-q -c 64 -n 40000"),
        "/hello",
        &[FloorEpollOnce, Highwire(Readiness), Highwire(Uring)],
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
        "256 connections, requests at a constant rate; latency counts from when a request was due, not from when it could be sent",
        Load::Rate { connections: 256, percents: &[50, 80] },
        "/hello",
        BOTH,
    ),
    alone(
        "ab-keepalive",
        "ab -k with 200 connections. No floor: ab -k wants `Connection: keep-alive` in each answer, which the canned one lacks",
        Load::Ab("-q -k -c 200 -n 100000"),
        "/hello",
        NO_FLOOR,
    ),
    alone(
        "ab-close",
        "ab with 200 connections at a time, a connection for each request",
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
        "10,000 connections, all established before the clock starts. The answer is the 13 bytes of /hello, not 2",
        Load::Closed { connections: 10_000, depth: 1, headers: false },
        "/hello",
        BOTH,
    ),
    alone(
        "hello512",
        "512 connections, one small request in flight on each: what `echo512` is compared with",
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
        "512 connections; a kilobyte of JSON posted, parsed to a value of any shape, and answered with that value as JSON",
        Load::Post { connections: 512, file: "bench/scripts/order.json" },
        "/json",
        &[Axum, Highwire(Uring), Highwire(Readiness)],
    ),
    alone(
        "static-1k",
        "512 connections; a file of 1 KiB, by nginx with sendfile and open_file_cache",
        Load::Closed { connections: 512, depth: 1, headers: false },
        "/1k.txt",
        FILES,
    ),
    alone(
        "static-100k",
        "64 connections; a file of 100 KB, by nginx with sendfile and open_file_cache",
        Load::Closed { connections: 64, depth: 1, headers: false },
        "/100k.bin",
        FILES,
    ),
    alone(
        "static-10m",
        "16 connections; a file of 10 MB, by nginx with sendfile and open_file_cache",
        Load::Closed { connections: 16, depth: 1, headers: false },
        "/10m.bin",
        FILES,
    ),
    alone(
        "upload",
        "one upload of 10 GiB, hashed as it comes; the most memory that the server ever had resident",
        Load::Upload { bytes: 10 << 30 },
        "/upload",
        NO_FLOOR,
    ),
    alone(
        "slow-readers",
        "1,000 clients, each of which takes 4 KiB every 100 ms of an answer of 100 MB; the most memory that the server ever \
         had resident",
        Load::SlowReaders { connections: 1000 },
        "/stream?bytes=100000000",
        NO_FLOOR,
    ),
    alone(
        "h2-16x32",
        "HTTP/2 in the clear, 16 connections with 32 streams each. h2load works harder than any of these servers",
        Load::H2load { options: "-n 400000 -c 16 -m 32", tls: false },
        "/hello",
        H2,
    ),
    alone(
        "h2-1x100",
        "HTTP/2 in the clear, one connection with 100 streams",
        Load::H2load { options: "-n 400000 -c 1 -m 100", tls: false },
        "/hello",
        H2,
    ),
    alone(
        "h2-headers",
        "HTTP/2 in the clear, 16 connections with 32 streams each, and the fields that a browser sends",
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
        "a connection for each request, each with a full handshake: TLS 1.3, X25519, a certificate with ECDSA P-256",
        Load::Handshakes { resumed: false },
        "/hello",
        NGINX_TLS,
    ),
    alone(
        "tls-resumed",
        "a connection for each request, each with the session of the one before: TLS 1.3, X25519",
        Load::Handshakes { resumed: true },
        "/hello",
        NGINX_TLS,
    ),
    alone("tls-download-h1", DOWNLOAD_H1, Load::Download { version: "1.1" }, DOWNLOAD, NGINX_TLS),
    alone("tls-download-h2", DOWNLOAD_H2, Load::Download { version: "2" }, DOWNLOAD, NGINX_TLS),
    alone(
        "idle-memory",
        "10,000 keep-alive connections that were each served once; the server's resident memory over its memory with 100 \
         others. Memory that the kernel holds for sockets is not in it",
        Load::Idle { connections: 10_000, warm_up: 100, protocol: Protocol::Http1 },
        "/hello",
        BOTH,
    ),
    alone(
        "tls-idle-h1",
        "1,000 connections under TLS that were each served once by HTTP/1.1; resident memory over that with 100 others",
        Load::Idle { connections: 1000, warm_up: 100, protocol: Protocol::Http1Tls },
        "/hello",
        NGINX_TLS,
    ),
    alone(
        "tls-idle-h2",
        "1,000 connections under TLS that were each served once by HTTP/2; resident memory over that with 100 others",
        Load::Idle { connections: 1000, warm_up: 100, protocol: Protocol::Http2Tls },
        "/hello",
        NGINX_TLS,
    ),
];

/// A server as it is started, with `PORT` for its port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Server {
    pub(super) name: String,
    /// Program and arguments.
    pub(super) command: Vec<String>,
    /// CPUs it may use, as taskset takes them; `None`: all.
    pub(super) cpus: Option<&'static str>,
}

impl Server {
    pub(super) fn new(name: &str, command: &str, cpus: Option<&'static str>) -> Self {
        Self { name: name.to_owned(), command: command.split(' ').map(str::to_owned).collect(), cpus }
    }

    /// The command line with its port, as one would type it.
    pub(super) fn line(&self, port: u16) -> Vec<String> {
        self.command.iter().map(|word| word.replace("PORT", &port.to_string())).collect()
    }
}

/// Measured servers have a core to themselves; the generator has another.
const SERVER_CPU: Option<&str> = Some("0");

impl Entrant {
    /// The peer that has to be there for it.
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

/// Another engine: nginx from its configuration template, the rest from bench/peers.
pub(super) fn peer(name: &str) -> Server {
    match name {
        "nginx" => Server::new("nginx", "nginx -e stderr -p DIR -c DIR/nginx.conf", SERVER_CPU),
        name => Server::new(name, &format!("bench/peers/target/release/peer-{name} PORT"), SERVER_CPU),
    }
}

/// The servers of a scenario in order: the first, the first again, the others, the peers.
pub(super) fn servers(entrants: &[Entrant], peers: &[String]) -> Vec<Server> {
    let mut servers: Vec<Server> = entrants.iter().map(|entrant| entrant.server()).collect();
    if let Some(first) = servers.first().cloned() {
        servers.insert(1, Server { name: format!("{} again", first.name), ..first });
    }
    servers.extend(peers.iter().map(|name| peer(name)));
    servers
}

/// The scenarios of these names or groups, in the order of the table; all if none is named. `Err`: the name that is unknown.
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
        let names: Vec<String> =
            servers(URING, &["hyper".into(), "nginx".into()]).into_iter().map(|server| server.name).collect();
        assert_eq!(names, ["floor (io_uring)", "floor (io_uring) again", "highwire (uring)", "hyper", "nginx"]);
    }

    #[test]
    fn the_port_is_put_in() {
        assert_eq!(FloorEpollOnce.server().line(18_101), ["bench/bin/floor_epoll", "18101", "once"]);
        assert!(Highwire(Uring).server().line(18_101).contains(&"127.0.0.1:18101".to_owned()));
    }
}
