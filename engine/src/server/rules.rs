//! The timeouts and limits that apply to a connection: those of the server's settings, or those of a client.

use crate::client::settings as client;
use crate::runtime::deadline::{self, NEVER};
use crate::server::config::{Config, Timeouts};
use highwire_proto::Limits;
use highwire_proto::h2::Bounds;
use std::time::Duration;

/// The largest initial window of a stream on a server. A client may send 65,535 bytes before it knows our SETTINGS. With a
/// smaller window in these, it would have a negative one, with which some clients cannot deal.
const FIRST_WINDOW: u32 = 64 * 1024;

/// The timeouts in ticks and the limits that apply to a connection. A worker lends the server's rules to its
/// connections, and to a connection that we have opened those of its client.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) head: u32,
    pub(crate) body: u32,
    pub(crate) idle: u32,
    pub(crate) write: u32,
    pub(crate) handler: u32,
    pub(crate) disconnect: u32,
    pub(crate) tunnel: u32,
    pub(crate) linger: u32,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only TLS has handshakes"))]
    pub(crate) handshake: u32,
    /// The number of bytes of a body that must arrive in the period `body`.
    pub(crate) least_body: u64,
    /// The number of bytes of a message that the peer must take in the period `write`.
    pub(crate) least_taken: u64,
    /// The limits on received heads and chunks.
    pub(crate) parser: Limits,
    /// The limits of HTTP/2. Its `stream_window` is the initial window.
    pub(crate) http2: Bounds,
    /// The number of bytes to which the window of a stream is widened for a body or a tunnel.
    pub(crate) stream_window: u32,
    /// The most bytes of a body that are received and dropped on a client's connection; `None` on a server's, where the
    /// service decides.
    pub(crate) unread_body_bytes: Option<u64>,
    /// The most requests at the same time on a client's connection of HTTP/2.
    pub(crate) streams: usize,
}

impl Rules {
    /// Returns the rules of a server with these settings. The initial window of a stream has a limit, because a peer can
    /// fill the windows of all its streams before any of the bodies is complete.
    pub(crate) fn of_server(config: &Config) -> Rules {
        let first_window = config.http2.stream_window.min(FIRST_WINDOW);
        Rules {
            stream_window: config.http2.stream_window,
            ..Rules::new(&config.timeouts, &config.parser, Bounds { stream_window: first_window, ..config.http2 })
        }
    }

    fn new(timeouts: &Timeouts, parser: &Limits, http2: Bounds) -> Rules {
        Rules {
            head: deadline::ticks(timeouts.head),
            body: deadline::ticks(timeouts.body),
            idle: deadline::ticks(timeouts.idle),
            write: deadline::ticks(timeouts.write),
            handler: deadline::ticks(timeouts.handler),
            disconnect: deadline::ticks(timeouts.disconnect),
            tunnel: deadline::ticks(timeouts.tunnel),
            // For this timeout, zero means at once, not never.
            linger: if timeouts.linger.is_zero() { 0 } else { deadline::ticks(timeouts.linger) },
            handshake: deadline::ticks(timeouts.handshake),
            least_body: timeouts.least_body(),
            least_taken: timeouts.least_taken(),
            parser: parser.clone(),
            stream_window: http2.stream_window,
            http2,
            unread_body_bytes: None,
            streams: 0,
        }
    }

    /// Returns the rules of a client. The program itself sets the time for the parts of its requests' bodies, and for
    /// taking the responses'.
    pub(crate) fn of_client(timeouts: &client::Timeouts, bounds: &client::Bounds) -> Rules {
        let timeouts = Timeouts {
            handshake: timeouts.handshake,
            head: timeouts.head,
            body: timeouts.body,
            body_rate: timeouts.body_rate,
            write: timeouts.write,
            idle: timeouts.idle,
            tunnel: timeouts.tunnel,
            handler: Duration::ZERO,
            ..Timeouts::default()
        };
        debug_assert_eq!(deadline::ticks(timeouts.handler), NEVER);
        Rules {
            unread_body_bytes: Some(bounds.unread_body_bytes),
            // With a rate of 0, any byte is enough.
            least_body: timeouts.least_body().max(1),
            streams: bounds.streams,
            ..Rules::new(&timeouts, &bounds.parser, bounds.http2)
        }
    }

    /// Returns true if these are the rules of a client.
    pub(crate) fn is_client(&self) -> bool {
        self.unread_body_bytes.is_some()
    }
}
