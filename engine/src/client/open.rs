//! Turns a raw stream into a connection to a server of HTTP.

use super::failure::Failure;
use super::link::{Link, Setup};
use super::pool::Origin;
use crate::raw::RawStream;
#[cfg(feature = "tls")]
use crate::runtime::context;
use crate::runtime::promise::promise;
#[cfg(feature = "tls")]
use crate::secure::Secure;
use crate::server::rules::Rules;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The version of HTTP that a client speaks to an origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Protocol {
    /// HTTP/2 if both sides agree on it by ALPN, otherwise HTTP/1.1. The TLS configuration must offer both.
    #[default]
    Auto,
    /// HTTP/1.0, with persistent connections if the server agrees.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2. Without TLS, the client must know that the server speaks it (RFC 9113 section 3.3).
    Http2,
}

/// How long the steps took that opened a connection. A step that was not needed took no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpeningTimes {
    /// The lookup of the names.
    pub resolve: Duration,
    /// The connection, with the exchange with a proxy.
    pub connect: Duration,
    /// The TLS handshake.
    pub handshake: Duration,
}

/// An opened connection that speaks no protocol yet.
pub struct Opened {
    /// The connection's bytes.
    pub stream: RawStream,
    /// How long the steps took so far.
    pub times: OpeningTimes,
    /// The TLS configuration and the name of the server; `None` without TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<(std::sync::Arc<crate::tls::ClientConfig>, crate::tls::ServerName<'static>)>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl Opened {
    /// Lets the connection speak HTTP for the pool. Waits for the TLS handshake.
    pub(super) async fn into_link(
        self,
        rules: Rc<Rules>,
        protocol: Protocol,
        origin: Weak<Origin>,
    ) -> Result<Rc<Link>, Failure> {
        #[cfg(feature = "tls")]
        let handshake_begun = self.tls.is_some().then(context::now);
        #[cfg(not(feature = "tls"))]
        let handshake_begun = None;
        let (opening, mut opened) = promise();
        let link = Link::new(rules, protocol, origin, opening, handshake_begun, self.times);
        #[cfg(feature = "tls")]
        let tls = match self.tls {
            Some((config, name)) => {
                let mut hello = Vec::new();
                let secure =
                    Secure::connect(config, name, &mut hello).map_err(|error| Failure::Tls(error.to_string()))?;
                Some((secure, hello))
            }
            None => None,
        };
        let setup = Setup {
            link: link.clone(),
            #[cfg(feature = "tls")]
            tls,
        };
        self.stream.into_http(Box::new(setup));
        // The promise is dropped with the connection.
        poll_fn(|cx| opened.poll(cx)).await.unwrap_or(Err(Failure::Lost)).map(|()| link)
    }
}
