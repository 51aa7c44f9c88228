//! The settings of a server and their defaults. docs/limits.md lists the bounds, each with a reason.

use crate::error::{Error, Result};
use std::time::Duration;

/// The interface to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// io_uring if the kernel supports and permits it; otherwise epoll, with a warning in the log.
    #[default]
    Auto,
    /// io_uring. If it is unavailable, the server does not start.
    Uring,
    /// epoll.
    Readiness,
    /// A thread for each connection, from a bounded pool. It exists for comparison, and for handlers that must block.
    Threads,
}

/// The way in which connections reach the workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// Each worker has its own socket on the port, and the kernel distributes connections among them (SO_REUSEPORT).
    /// Other processes of the same user can listen on the port, too. This is the default on Linux and FreeBSD.
    ReusePort,
    /// One thread accepts connections and gives each to the worker with the fewest connections. This is the default on
    /// macOS and Windows, whose kernels do not distribute connections.
    Handoff,
}

impl Default for Balance {
    fn default() -> Balance {
        if highwire_io::listen::SHARES_PORTS { Balance::ReusePort } else { Balance::Handoff }
    }
}

/// The time limits of peers and handlers. Zero turns a timeout off, but for `linger` and `shutdown` it means no
/// waiting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Deadlines")]
#[non_exhaustive]
pub struct Timeouts {
    /// The time from the start of a connection to the end of its TLS handshake. After this time, the connection closes.
    pub handshake: Duration,
    /// The time from the first byte of a request to the end of its head. After this time, the engine answers 408. A new
    /// connection closes after the same time if it has received nothing.
    pub head: Duration,
    /// The period over which the average rate of a request's body is measured. The engine answers a body slower than
    /// `body_rate` with 408, or cuts a response that has begun.
    pub body: Duration,
    /// The lowest permitted rate of a request's body, in bytes per second.
    pub body_rate: u32,
    /// The time after which a connection without a request closes.
    pub idle: Duration,
    /// The time after which a connection is cut if answers wait and the peer has taken no bytes of them. An HTTP/2
    /// stream is reset if the peer takes its answer more slowly than `body_rate` during this time.
    pub write: Duration,
    /// The time in which an async or blocking handler, or another thread, must answer, and in which each further part
    /// of a response's body must become ready. After this time, the engine answers 503, or cuts a response that has
    /// begun.
    pub handler: Duration,
    /// The time that a handler, or the next part of a response's body, has after an HTTP/1 client has ended its direction,
    /// which usually means that it has left. After this time, the handler is cancelled. Zero gives it the whole time of
    /// `handler`. A handler may choose otherwise: see [`OnDisconnect`](crate::OnDisconnect).
    pub disconnect: Duration,
    /// The time after which a tunnel, opened by Upgrade or CONNECT, is ended if no byte has passed in either direction.
    pub tunnel: Duration,
    /// The longest time after the last answer in which the connection reads and drops the peer's bytes, so that no
    /// reset destroys the answer.
    pub linger: Duration,
    /// The longest time that a graceful shutdown waits for pending requests.
    pub shutdown: Duration,
    /// The time after which a plain handler, or one poll of an async handler, that holds its worker causes a warning in
    /// the log. Only [`Server::run`](crate::Server::run) and [`Server::run_with_stats`](crate::Server::run_with_stats)
    /// log it.
    pub stall: Duration,
}

impl Timeouts {
    /// Returns the number of bytes of a body that must arrive in one period.
    pub(crate) fn least_body(&self) -> u64 {
        u64::from(self.body_rate) * self.body.as_secs().max(1)
    }

    /// Returns the number of bytes of an answer that a peer must take within `write`.
    pub(crate) fn least_taken(&self) -> u64 {
        (u64::from(self.body_rate) * self.write.as_secs().max(1)).max(1)
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            // This is enough for three round trips on a very slow network, and for the user to enter the PIN of a
            // certificate.
            handshake: Duration::from_secs(10),
            // This is long enough for a bad mobile network, and limits how long a client can hold a connection by
            // sending a head slowly.
            head: Duration::from_secs(15),
            body: Duration::from_secs(30),
            // Even a modem of 1998 is ten times as fast.
            body_rate: 500,
            // Many clients close idle connections after a minute. With a longer timeout here, such a client closes
            // first.
            idle: Duration::from_secs(75),
            // If an application reads 4 KB/s, its kernel may open the receive window in steps of 128 KB, so 32 seconds
            // pass between two steps.
            write: Duration::from_secs(60),
            handler: Duration::from_secs(60),
            // A client that closes its direction and still reads gets what takes a moment.
            disconnect: Duration::from_secs(1),
            // Chats and proxies send keep-alives about every minute, and most NATs forget an idle connection only
            // later.
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
#[non_exhaustive]
pub struct Limits {
    /// The most open connections, over all workers. `None` means the process's limit of descriptors minus 32, which is
    /// also the upper bound of other values.
    pub connections: Option<u32>,
    /// The most open connections of one address. In IPv6, a /64 counts as one address. Raise it behind a proxy, because
    /// all clients then have the proxy's address.
    pub connections_a_peer: u32,
    /// The most requests on one connection, so that load balancers can redistribute long-lived connections. 0 means no
    /// limit.
    pub requests_a_connection: u32,
    /// The most bytes of a body that a handler takes whole. The engine answers a larger body with 413.
    pub body_bytes: u64,
    /// The most bytes of a body that a handler takes in parts. No buffer holds all of it, so the default is large (1
    /// TiB).
    pub streamed_body_bytes: u64,
    /// The most bytes of a body that are read and dropped if no handler takes it. A larger body ends its HTTP/1
    /// connection or its HTTP/2 stream.
    pub unread_body_bytes: u64,
    /// The most threads of the blocking pool.
    pub blocking_threads: usize,
    /// The most jobs that wait for a thread of the blocking pool. A request whose blocking handler would have to wait
    /// beyond that is answered with 503.
    pub blocking_queue: usize,
    /// The most connections that the engine `threads` serves at the same time.
    pub connection_threads: usize,
    /// The most connections that wait for a thread of the engine `threads`. Further ones are answered with 503.
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
#[non_exhaustive]
pub struct Config {
    /// The number of workers. 0 means one for each CPU that the process may use.
    pub workers: usize,
    /// Pins each worker to one CPU.
    pub pin: bool,
    /// The interface to the kernel.
    pub engine: Engine,
    /// The way in which connections reach the workers.
    pub balance: Balance,
    /// Options of listening sockets.
    pub socket: highwire_io::Options,
    /// The parser's limits on heads, fields and chunk framing.
    pub parser: highwire_proto::Limits,
    /// Serves HTTP/1. If it is off, every connection must speak HTTP/2, with or without TLS.
    pub http1: bool,
    /// Serves HTTP/2 without TLS to clients with prior knowledge (RFC 9113 section 3.3).
    pub http2_cleartext: bool,
    /// Offers HTTP/2 under TLS, by ALPN.
    pub http2_tls: bool,
    /// Lets a client under TLS speak HTTP/2 without ALPN, if `http2_tls` is on. RFC 9113 section 3.2 demands ALPN.
    pub http2_without_alpn: bool,
    /// Limits of HTTP/2.
    pub http2: highwire_proto::h2::Bounds,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// Bounds on connections, bodies and threads.
    pub limits: Limits,
    /// The memory budget: the most bytes that the engine may count as held for all peers. `None` means half of the
    /// memory that the process may use, or a quarter if the process may use less than 128 MiB.
    pub memory: Option<usize>,
    /// The value of the `Server` field. `None` means no such field.
    pub server_name: Option<String>,
    /// Treats a POST with `X-HTTP-Method-Override: PUT`, `PATCH` or `DELETE` as a request with that method, for clients
    /// that can send only GET and POST.
    pub method_override: bool,
    /// Answers an HTTP/1 request with 400 if its absolute target (`GET http://a/`) and its Host field name different
    /// hosts. By default, the target's host replaces the field's, as RFC 9112 section 3.2.2 requires. A proxy that
    /// reads only Host may have routed the request by another host.
    pub refuse_other_host: bool,
    /// Emits a `tracing` event for each response to a request with a valid head, with the target `highwire::access`.
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

/// The smallest permitted memory budget in bytes. It is enough for a few connections, each of which needs some
/// kilobytes for a head, and 12 KB for a TLS session.
const LEAST_MEMORY: usize = 64 * 1024;

/// The most workers. A larger number is probably a mistake, because hardly any machine has so many cores.
const MOST_WORKERS: usize = 1024;

impl Config {
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: &str| Err(Error::Setting(text.to_string()));
        if self.workers > MOST_WORKERS {
            return Err(Error::Setting(format!("{} workers are too many: the most is {MOST_WORKERS}", self.workers)));
        }
        if self.engine == Engine::Threads && !self.http1 {
            return refuse(
                "the engine `threads` needs HTTP/1, which is turned off; for HTTP/2 alone choose another engine",
            );
        }
        if !self.http1 && !self.http2_cleartext && !self.http2_tls {
            return refuse("HTTP/1 and HTTP/2 are both turned off; turn on http1, http2_cleartext or http2_tls");
        }
        if self.limits.connections == Some(0) {
            return refuse("a limit of 0 connections would refuse every client; the least is 1");
        }
        if let Some(memory) = self.memory
            && memory < LEAST_MEMORY
        {
            return Err(Error::Setting(format!(
                "{memory} bytes of memory for all peers are too few; a server needs at least {LEAST_MEMORY} bytes"
            )));
        }
        let available = highwire_io::memory::available();
        if let Some(memory) = self.memory
            && memory > available
        {
            return Err(Error::Setting(format!(
                "{memory} bytes of memory for all peers are more than the {available} bytes that this process may use"
            )));
        }
        if self.parser.head_bytes > highwire_proto::Limits::MAX_HEAD_BYTES
            || self.parser.trailer_bytes > highwire_proto::Limits::MAX_HEAD_BYTES
        {
            return refuse("the parser's head_bytes and trailer_bytes must be at most 65,535 bytes");
        }
        if let Some(name) = &self.server_name
            && !name.bytes().all(|byte| (b' '..0x7f).contains(&byte))
        {
            return refuse("the server's name must contain only printable ASCII characters and spaces");
        }
        let largest = 0x7fff_ffff;
        let windows = [self.http2.stream_window, self.http2.connection_window, self.http2.most_window];
        if windows.into_iter().any(|window| window > largest) {
            return refuse("stream_window, connection_window and most_window must be at most 2,147,483,647 bytes");
        }
        if self.limits.blocking_threads == 0 || self.limits.connection_threads == 0 {
            return refuse("blocking_threads and connection_threads must be at least 1");
        }
        Ok(())
    }
}
