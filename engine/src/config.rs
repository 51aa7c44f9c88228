//! Every setting of a server, with its default and the reason for it. docs/limits.md lists the bounds.

use crate::error::{Error, Result};
use std::time::Duration;

/// How a server talks to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// io_uring where the system has and allows it, else readiness.
    #[default]
    Auto,
    /// io_uring; where it is not to be had, readiness, and a warning.
    Uring,
    /// epoll.
    Readiness,
    /// A thread for each connection, out of a bounded pool: for comparison, and for code that must block.
    Threads,
}

/// How connections reach the workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Each worker has its own queue on the port, and the kernel spreads connections over them (SO_REUSEPORT). Other
    /// processes of the same user may join the port.
    #[default]
    ReusePort,
    /// One thread accepts and hands each connection to the worker that has the fewest.
    Handoff,
}

/// How long peers may take. Zero turns a deadline off; for `linger` and `shutdown` it means at once.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Deadlines")]
pub struct Timeouts {
    /// From a connection's start to the end of its TLS handshake: it closes after that.
    pub handshake: Duration,
    /// From a connection's first byte, or its start, to the end of a request's head: 408 after that.
    pub head: Duration,
    /// Over how long a body's rate is judged; a body that brings less than the rate in that time is 408.
    pub body: Duration,
    /// Bytes a second that a body has to bring at least.
    pub body_rate: u32,
    /// How long a connection may stay open without a request.
    pub idle: Duration,
    /// How long a peer may take nothing of what is sent to it; on a stream of HTTP/2 whose window is closed, less than
    /// `body_rate`.
    pub write: Duration,
    /// How long an async handler, a blocking one or an answer from elsewhere may take: 503 after that.
    pub handler: Duration,
    /// How long another protocol, after an upgrade or CONNECT, may pass no byte in either direction.
    pub tunnel: Duration,
    /// How long what a peer still sends is read and dropped after the last answer, so that it is not lost to a reset.
    pub linger: Duration,
    /// How long a graceful shutdown waits for what is under way.
    pub shutdown: Duration,
    /// A plain handler that holds its worker longer than this is named in a warning, and so is one poll of an async handler.
    pub stall: Duration,
}

impl Timeouts {
    /// Bytes that a body must bring while its rate is judged once.
    pub(crate) fn least_body(&self) -> u64 {
        u64::from(self.body_rate) * self.body.as_secs().max(1)
    }

    /// Bytes that a peer must take of an answer in the time that it has to take something.
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
            // Browsers keep connections for about a minute.
            idle: Duration::from_secs(75),
            // A kernel that reads 4 KB/s announces new room in steps of up to 128 KB where segments are large.
            write: Duration::from_secs(60),
            handler: Duration::from_secs(60),
            // What chats and proxies send to keep a connection comes every minute; most translators of addresses forget later.
            tunnel: Duration::from_secs(300),
            linger: Duration::from_secs(2),
            shutdown: Duration::from_secs(30),
            stall: Duration::from_millis(100),
        }
    }
}

/// How much of everything.
#[derive(Clone, Debug, PartialEq, Eq)]
#[doc(alias = "Caps")]
pub struct Limits {
    /// Connections at once, over all workers; none: what the descriptor limit allows, less a reserve of 32.
    pub connections: Option<u32>,
    /// Connections at once from one address, where a /64 counts as one in IPv6. Behind a proxy every peer has its address: raise it there.
    pub connections_a_peer: u32,
    /// Requests on one connection, so that long-lived ones are spread anew now and then. 0: no bound.
    pub requests_a_connection: u32,
    /// Bytes of a request's body that handlers take: 413 above. Streamed bodies have their own, below.
    pub body_bytes: u64,
    /// Bytes of a body that a handler takes in parts. Nothing holds all of it, so it may be large: 1 TiB.
    pub streamed_body_bytes: u64,
    /// Bytes of a body that are read and dropped because no handler wants them; the connection closes above.
    pub unread_body_bytes: u64,
    /// Threads of the blocking pool.
    pub blocking_threads: usize,
    /// Jobs that wait for a thread of the blocking pool: 503 above.
    pub blocking_queue: usize,
    /// Connections that the threads engine serves at once.
    pub connection_threads: usize,
    /// Connections that wait for a thread of the threads engine: 503 above.
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

/// A server's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Workers; 0: one for each CPU that the process may use.
    pub workers: usize,
    /// Pins each worker to a CPU of its own.
    pub pin: bool,
    /// How to talk to the kernel.
    pub engine: Engine,
    /// How connections reach the workers.
    pub balance: Balance,
    /// Options of listening sockets.
    pub socket: highwire_io::Options,
    /// Bounds of heads, fields and chunk framing.
    pub parser: highwire_proto::Limits,
    /// Whether HTTP/1 is spoken. Without it every connection has to begin with HTTP/2, in the clear and under TLS.
    pub http1: bool,
    /// Whether HTTP/2 is spoken in the clear, to clients that know that it is (RFC 9113 section 3.3).
    pub http2_cleartext: bool,
    /// Whether HTTP/2 is offered under TLS, by ALPN.
    pub http2_tls: bool,
    /// Whether a client under TLS that offers no ALPN may speak HTTP/2 all the same, if `http2_tls` is on. RFC 9113 section 3.2
    /// demands ALPN.
    pub http2_without_alpn: bool,
    /// What HTTP/2 lets a peer do.
    pub http2: highwire_proto::h2::Bounds,
    /// How long peers may take.
    pub timeouts: Timeouts,
    /// How much of everything.
    pub limits: Limits,
    /// Bytes that the engine may hold for peers, at most what the process may use. None: half of that, or a
    /// quarter if that is less than 128 MiB.
    pub memory: Option<usize>,
    /// The `Server` field; none leaves it out.
    pub server_name: Option<String>,
    /// A POST with `X-HTTP-Method-Override: PUT`, `PATCH` or `DELETE` is taken as one of these, for clients that can send
    /// nothing but GET and POST.
    pub method_override: bool,
    /// Refuses a request of HTTP/1 with 400 if its absolute target (`GET http://a/`) and its Host field name different hosts. By
    /// default the target's replaces the field's, as RFC 9112 section 3.2.2 demands: routes, handlers and services see one host.
    /// A proxy that goes by Host may have seen another.
    pub refuse_other_host: bool,
    /// One `tracing` event for each request, target `highwire::access`.
    pub access_log: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            workers: 0,
            pin: false,
            engine: Engine::Auto,
            balance: Balance::ReusePort,
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

/// Less does not hold what a few connections need: each that reads a head has a buffer of some kilobytes, a session of TLS
/// twelve.
const LEAST_MEMORY: usize = 64 * 1024;

/// More workers than any machine has cores: a slip of the keyboard.
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
