//! Every setting of a server, with its default and the reason for it. docs/limits.md lists the bounds.

use crate::error::{Error, Result};
use std::time::Duration;

/// The interface to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring if the system has and allows it, else readiness.
    #[default]
    Auto,
    /// io_uring; if it is not available, readiness and a warning.
    Uring,
    /// epoll.
    Readiness,
    /// A thread for each connection, from a bounded pool: for comparison, and for handlers that must block.
    Threads,
}

/// How connections reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Balance {
    /// Each worker has its own queue at the port, and the kernel spreads connections over them (SO_REUSEPORT). Other processes of
    /// the same user can listen at the port, too. The default on Linux and FreeBSD.
    ReusePort,
    /// One thread accepts connections and gives each to the worker with the fewest. The default on systems whose kernel does not
    /// spread connections: macOS and Windows.
    Handoff,
}

impl Default for Balance {
    fn default() -> Balance {
        if highwire_io::listen::SHARES_PORTS { Balance::ReusePort } else { Balance::Handoff }
    }
}

/// The time that peers and handlers have. Zero turns a timeout off; for `linger` and `shutdown` it means at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Deadlines")]
pub struct Timeouts {
    /// From the start of a connection to the end of its TLS handshake. After that the connection closes.
    pub handshake: Duration,
    /// From the first byte of a request, or the start of the connection, to the end of the head. After that 408.
    pub head: Duration,
    /// The period in which a body must bring `body_rate` on average; a slower body is answered 408.
    pub body: Duration,
    /// The least rate of a body, in bytes per second.
    pub body_rate: u32,
    /// A connection without a request closes after this time.
    pub idle: Duration,
    /// A peer that takes no bytes of its answers for this time is cut; on a stream of HTTP/2, one that takes less than `body_rate`.
    pub write: Duration,
    /// The time of an async or blocking handler, or of an answer from elsewhere. After that 503.
    pub handler: Duration,
    /// Another protocol, after an upgrade or CONNECT, is ended if no byte passes in either direction for this time.
    pub tunnel: Duration,
    /// After the last answer, what the peer still sends is read and dropped for this time, so that no reset destroys the answer.
    pub linger: Duration,
    /// The time that a graceful shutdown waits for pending requests.
    pub shutdown: Duration,
    /// A warning names a plain handler, or one poll of an async handler, that holds its worker for longer than this.
    pub stall: Duration,
}

impl Timeouts {
    /// Returns the bytes that a body must bring in one period.
    pub(crate) fn least_body(&self) -> u64 {
        u64::from(self.body_rate) * self.body.as_secs().max(1)
    }

    /// Returns the bytes that a peer must take of an answer within `write`.
    pub(crate) fn least_taken(&self) -> u64 {
        (u64::from(self.body_rate) * self.write.as_secs().max(1)).max(1)
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            // Three round trips of the worst line, and time for the client to ask its user for a certificate's PIN.
            handshake: Duration::from_secs(10),
            // Long enough for a bad mobile line, short enough that slow heads cannot pile up.
            head: Duration::from_secs(15),
            body: Duration::from_secs(10),
            // A modem of 1998 is ten times as fast.
            body_rate: 500,
            // Longer than a client that closes idle connections after a minute, so that such a client closes first.
            idle: Duration::from_secs(75),
            // A kernel whose reader takes 4 KB/s announces new room in steps of up to 128 KB if segments are large.
            write: Duration::from_secs(60),
            handler: Duration::from_secs(60),
            // Chats and proxies send keep-alives about every minute; most NATs forget a connection later.
            tunnel: Duration::from_secs(300),
            linger: Duration::from_secs(2),
            shutdown: Duration::from_secs(30),
            stall: Duration::from_millis(100),
        }
    }
}

/// Bounds on connections, bodies and threads.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Caps")]
pub struct Limits {
    /// Open connections, over all workers. `None`: what the limit of descriptors allows, less a reserve of 32.
    pub connections: Option<u32>,
    /// Open connections of one address; a /64 counts as one address in IPv6. Raise it behind a proxy, whose address all peers have.
    pub connections_a_peer: u32,
    /// Requests on one connection, so that balancers can spread long-lived connections again. 0: no bound.
    pub requests_a_connection: u32,
    /// Bytes of a body that a handler takes whole; larger bodies are answered 413.
    pub body_bytes: u64,
    /// Bytes of a body that a handler takes in parts. Nothing holds all of it, so the default is large: 1 TiB.
    pub streamed_body_bytes: u64,
    /// Bytes of a body that no handler takes, which are read and dropped. The connection closes if there are more.
    pub unread_body_bytes: u64,
    /// Threads of the blocking pool.
    pub blocking_threads: usize,
    /// Jobs that wait for a thread of the blocking pool; further ones are answered 503.
    pub blocking_queue: usize,
    /// Connections that the engine `threads` serves at the same time.
    pub connection_threads: usize,
    /// Connections that wait for a thread of the engine `threads`; further ones are answered 503.
    pub connection_queue: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: None,
            connections_a_peer: 16_384,
            requests_a_connection: 0,
            body_bytes: 1024 * 1024,
            streamed_body_bytes: 1 << 40,
            unread_body_bytes: 64 * 1024,
            blocking_threads: 16,
            blocking_queue: 1024,
            connection_threads: 64,
            connection_queue: 1024,
        }
    }
}

/// The settings of a server.
#[derive(Clone, Debug)]
pub struct Config {
    /// The number of workers. 0: one for each CPU that the process may use.
    pub workers: usize,
    /// Pins each worker to a CPU of its own.
    pub pin: bool,
    /// The interface to the kernel.
    pub engine: Engine,
    /// How connections reach the workers.
    pub balance: Balance,
    /// Options of listening sockets.
    pub socket: highwire_io::Options,
    /// The parser's bounds on heads, fields and chunk framing.
    pub parser: highwire_proto::Limits,
    /// Serves HTTP/1. If it is off, every connection must begin with HTTP/2, with and without TLS.
    pub http1: bool,
    /// Serves HTTP/2 without TLS to clients with prior knowledge (RFC 9113 section 3.3).
    pub http2_cleartext: bool,
    /// Offers HTTP/2 under TLS, by ALPN.
    pub http2_tls: bool,
    /// Lets a client under TLS speak HTTP/2 without ALPN, if `http2_tls` is on. RFC 9113 section 3.2 demands ALPN.
    pub http2_without_alpn: bool,
    /// Bounds of HTTP/2.
    pub http2: highwire_proto::h2::Bounds,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Bounds on connections, bodies and threads.
    pub limits: Limits,
    /// Bytes that the engine may hold for all peers. `None`: half of the memory that the process may use, or a quarter if that is less
    /// than 128 MiB.
    pub memory: Option<usize>,
    /// The value of the `Server` field. `None`: no such field.
    pub server_name: Option<String>,
    /// Treats a POST with `X-HTTP-Method-Override: PUT`, `PATCH` or `DELETE` as a request with that method, for clients that can send
    /// only GET and POST.
    pub method_override: bool,
    /// Answers a request of HTTP/1 with 400 if its absolute target (`GET http://a/`) and its Host field name different hosts. By
    /// default the host of the target replaces that of the field, as RFC 9112 section 3.2.2 demands; a proxy that reads only Host may
    /// have seen another host.
    pub refuse_other_host: bool,
    /// Emits a `tracing` event for each request, with the target `highwire::access`.
    pub access_log: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            workers: 0,
            pin: false,
            engine: Engine::Auto,
            balance: Balance::default(),
            socket: highwire_io::Options::default(),
            parser: highwire_proto::Limits::default(),
            http1: true,
            http2_cleartext: true,
            http2_tls: true,
            http2_without_alpn: false,
            http2: highwire_proto::h2::Bounds::default(),
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            memory: None,
            server_name: Some("highwire".to_string()),
            method_override: false,
            refuse_other_host: false,
            access_log: false,
        }
    }
}

/// The least memory budget. A few connections need as much: each needs some kilobytes for a head, and twelve for a TLS session.
const LEAST_MEMORY: usize = 64 * 1024;

/// No machine has so many cores; a larger number is a mistake.
const MOST_WORKERS: usize = 1024;

impl Config {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Setting(text.to_string()));
        if self.workers > MOST_WORKERS {
            return Err(Error::Setting(format!("{} workers are more than {MOST_WORKERS}, the most", self.workers)));
        }
        if self.engine == Engine::Threads && !self.http1 {
            return refuse(
                "the engine `threads` needs HTTP/1, which is turned off; for HTTP/2 alone choose another engine",
            );
        }
        if !self.http1 && !self.http2_cleartext && !self.http2_tls {
            return refuse("neither HTTP/1 nor HTTP/2 is spoken: turn on one of http1, http2_cleartext and http2_tls");
        }
        if self.limits.connections == Some(0) {
            return refuse("with 0 connections at a time nobody is served: 1 is the least");
        }
        if let Some(memory) = self.memory
            && memory < LEAST_MEMORY
        {
            return Err(Error::Setting(format!(
                "{memory} bytes of memory for all peers are too few: a server needs {LEAST_MEMORY} at least"
            )));
        }
        let available = highwire_io::memory::available();
        if let Some(memory) = self.memory
            && memory > available
        {
            return Err(Error::Setting(format!(
                "{memory} bytes of memory for all peers are more than the {available} that this process may use"
            )));
        }
        if self.parser.head_bytes > highwire_proto::Limits::MAX_HEAD_BYTES
            || self.parser.trailer_bytes > highwire_proto::Limits::MAX_HEAD_BYTES
        {
            return refuse("heads and trailers have at most 65,535 bytes");
        }
        if let Some(name) = &self.server_name
            && !name.bytes().all(|byte| (b' '..0x7f).contains(&byte))
        {
            return refuse("the server's name has a byte that a field may not hold");
        }
        let largest = 0x7fff_ffff;
        if self.http2.stream_window > largest || self.http2.connection_window > largest {
            return refuse("an HTTP/2 window has at most 2,147,483,647 bytes");
        }
        if self.limits.blocking_threads == 0 || self.limits.connection_threads == 0 {
            return refuse("a pool needs at least one thread");
        }
        Ok(())
    }
}
