//! The time limits and bounds of a client.

use highwire_proto::{Limits, h2};
use std::time::Duration;

/// The time limits of a client's connections. Zero turns one off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// The time for the TLS handshake.
    pub handshake: Duration,
    /// The time from the end of the request to the end of the response's head.
    pub head: Duration,
    /// The period over which the average rate of the response's body is measured. While the program does not take the
    /// received bytes, no time passes.
    pub body: Duration,
    /// The lowest permitted rate of the response's body, in bytes per second. With 0, one byte in each period is enough.
    pub body_rate: u32,
    /// The time after which a connection is cut if the server has taken no bytes of the request.
    pub write: Duration,
    /// The time after which a connection without a request closes.
    pub idle: Duration,
    /// The time after which a tunnel, opened by Upgrade or CONNECT, is ended if no byte has passed in either direction.
    pub tunnel: Duration,
}

impl Timeouts {
    /// Sets [`handshake`](Self#structfield.handshake).
    #[must_use]
    pub fn handshake(mut self, handshake: Duration) -> Timeouts {
        self.handshake = handshake;
        self
    }

    /// Sets [`head`](Self#structfield.head).
    #[must_use]
    pub fn head(mut self, head: Duration) -> Timeouts {
        self.head = head;
        self
    }

    /// Sets [`body`](Self#structfield.body).
    #[must_use]
    pub fn body(mut self, body: Duration) -> Timeouts {
        self.body = body;
        self
    }

    /// Sets [`body_rate`](Self#structfield.body_rate).
    #[must_use]
    pub fn body_rate(mut self, body_rate: u32) -> Timeouts {
        self.body_rate = body_rate;
        self
    }

    /// Sets [`write`](Self#structfield.write).
    #[must_use]
    pub fn write(mut self, write: Duration) -> Timeouts {
        self.write = write;
        self
    }

    /// Sets [`idle`](Self#structfield.idle).
    #[must_use]
    pub fn idle(mut self, idle: Duration) -> Timeouts {
        self.idle = idle;
        self
    }

    /// Sets [`tunnel`](Self#structfield.tunnel).
    #[must_use]
    pub fn tunnel(mut self, tunnel: Duration) -> Timeouts {
        self.tunnel = tunnel;
        self
    }
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            handshake: Duration::from_secs(10),
            // Slow reports take longer than pages; most servers and proxies give up after a minute.
            head: Duration::from_secs(60),
            // Event streams send a comment every 15 to 30 seconds.
            body: Duration::from_secs(60),
            body_rate: 0,
            write: Duration::from_secs(30),
            // Servers usually close after 60 to 75 seconds or more. Nearly all of them do not before this.
            idle: Duration::from_secs(50),
            tunnel: Duration::from_secs(300),
        }
    }
}

/// The bounds of a client on one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The most connections to one origin. An HTTP/1 connection has one request at a time.
    pub connections: usize,
    /// The most connections to all origins. If another one is needed, an idle one of another origin closes.
    pub connections_in_all: usize,
    /// The most requests at the same time on a connection of HTTP/2. The server may allow fewer.
    pub streams: usize,
    /// The most requests to one origin that wait for a connection. A further one fails at once.
    pub waiting: usize,
    /// The most bytes of a response's body that are received and dropped after the program has dropped the body, so that
    /// the HTTP/1 connection can be used again. A longer rest ends the connection.
    pub unread_body_bytes: u64,
    /// The limits on the heads and the chunks of responses.
    pub parser: Limits,
    /// The limits of HTTP/2.
    pub http2: h2::Bounds,
}

impl Bounds {
    /// Sets [`connections`](Self#structfield.connections).
    #[must_use]
    pub fn connections(mut self, connections: usize) -> Bounds {
        self.connections = connections;
        self
    }

    /// Sets [`connections_in_all`](Self#structfield.connections_in_all).
    #[must_use]
    pub fn connections_in_all(mut self, connections_in_all: usize) -> Bounds {
        self.connections_in_all = connections_in_all;
        self
    }

    /// Sets [`streams`](Self#structfield.streams).
    #[must_use]
    pub fn streams(mut self, streams: usize) -> Bounds {
        self.streams = streams;
        self
    }

    /// Sets [`waiting`](Self#structfield.waiting).
    #[must_use]
    pub fn waiting(mut self, waiting: usize) -> Bounds {
        self.waiting = waiting;
        self
    }

    /// Sets [`unread_body_bytes`](Self#structfield.unread_body_bytes).
    #[must_use]
    pub fn unread_body_bytes(mut self, unread_body_bytes: u64) -> Bounds {
        self.unread_body_bytes = unread_body_bytes;
        self
    }

    /// Sets [`parser`](Self#structfield.parser).
    #[must_use]
    pub fn parser(mut self, parser: Limits) -> Bounds {
        self.parser = parser;
        self
    }

    /// Sets [`http2`](Self#structfield.http2).
    #[must_use]
    pub fn http2(mut self, http2: h2::Bounds) -> Bounds {
        self.http2 = http2;
        self
    }
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            connections: 256,
            connections_in_all: 1024,
            streams: 100,
            waiting: 4096,
            unread_body_bytes: 64 * 1024,
            parser: Limits::default(),
            // A response has a window of 256 KiB. That of the connection is as wide as those of all streams, so that
            // responses that the program does not read cannot stop the others.
            http2: h2::Bounds {
                streams: 100,
                stream_window: 256 * 1024,
                connection_window: 100 * 256 * 1024,
                ..h2::Bounds::default()
            },
        }
    }
}
