//! The options of a listener, beside its address.

use super::config::Config;
use super::connection::Connection;
use super::secure::ListenerTls;
#[cfg(feature = "tls")]
use super::secure::Secure;
use super::shared::Shared;
use super::worker::WorkerContext;
use crate::Result;
use crate::service::Service;
#[cfg(feature = "tls")]
use std::sync::atomic::Ordering;

/// The options of a listener, for [`Server::listen_with`](super::Server::listen_with).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Listen {
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::TlsConfig>,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "without TLS all is plain"))]
    plain_too: bool,
    proxied: bool,
}

impl Listen {
    /// Plain HTTP, without TLS.
    pub fn new() -> Listen {
        Listen::default()
    }

    /// Serves TLS: HTTP/2 and HTTP/1.1, as the client prefers. Changed files of the configuration are used within seconds.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: crate::tls::TlsConfig) -> Listen {
        self.tls = Some(config);
        self
    }

    /// Serves connections without TLS beside those with TLS; the first byte of a connection tells which it is. An address that requires
    /// client certificates cannot do this, because a connection without TLS has none.
    #[cfg(feature = "tls")]
    pub fn and_plain(mut self) -> Listen {
        self.plain_too = true;
        self
    }

    /// Expects a header of HAProxy's PROXY protocol, version 1 or 2, at the beginning of each connection, and cuts connections that
    /// begin with anything else. Only the proxy may reach such an address: any client could pretend to be another.
    pub fn proxy_protocol(mut self) -> Listen {
        self.proxied = true;
        self
    }

    /// Returns true if connections begin with plain HTTP.
    pub(super) fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        !has_tls && !self.proxied
    }

    /// Returns true if connections without TLS are served.
    fn has_clear(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_none() || self.plain_too;
        #[cfg(not(feature = "tls"))]
        return true;
    }

    /// Checks the options and builds the TLS configuration.
    pub(super) fn listener_setup(self, config: &Config) -> Result<ListenerSetup> {
        if self.has_clear() && !config.http1 && !config.http2_cleartext {
            let text = "a listener in the clear needs http1 or http2_cleartext: both are off";
            return Err(crate::Error::Setting(text.to_string()));
        }
        #[cfg(feature = "tls")]
        let tls = match self.tls {
            None => None,
            Some(tls) if self.plain_too && tls.requires_client_certificates() => {
                return Err(crate::Error::Setting(
                    "client certificates are required (ClientAuth::Required), and connections in the clear are served too \
                     (Listen::and_plain), which have none: leave out and_plain, or serve the clear at another address"
                        .to_string(),
                ));
            }
            Some(tls) => {
                let tls = match (config.http1, config.http2_tls) {
                    (true, true) => tls,
                    (true, false) => tls.restrict_alpn(&[b"http/1.1", b"http/1.0"]),
                    (false, true) => tls.restrict_alpn(&[b"h2"]),
                    (false, false) => {
                        let text = "a listener under TLS needs http1 or http2_tls: both are off";
                        return Err(crate::Error::Setting(text.to_string()));
                    }
                };
                let reload = tls.build().map_err(|error| crate::Error::Setting(error.to_string()))?;
                Some(ListenerTls::new(reload, self.plain_too))
            }
        };
        #[cfg(not(feature = "tls"))]
        let tls: Option<ListenerTls> = None;
        Ok(ListenerSetup { tls, proxied: self.proxied })
    }
}

/// Called by each worker in each second: one of them looks whether files of the TLS configurations have changed.
pub(super) fn look_at_files(_setups: &[ListenerSetup], _shared: &Shared, _seconds: u64) {
    #[cfg(feature = "tls")]
    if !_setups.is_empty() && _shared.looked.fetch_max(_seconds, Ordering::Relaxed) < _seconds {
        _setups.iter().filter_map(|setup| setup.tls.as_ref()).for_each(|tls| drop(tls.reload.look()));
    }
}

/// The beginning of connections of one listener.
#[derive(Clone, Default)]
pub(crate) struct ListenerSetup {
    pub(crate) tls: Option<ListenerTls>,
    /// The PROXY protocol.
    pub(crate) proxied: bool,
}

impl ListenerSetup {
    /// Gives a connection a TLS session. Returns false if there is no memory for it.
    #[cfg(feature = "tls")]
    pub(super) fn secure(&self, connection: &mut Connection, worker: &mut WorkerContext<impl Service>) -> bool {
        let secure = self.tls.as_ref().and_then(Secure::accept);
        secure.is_some_and(|secure| connection.secure(secure, worker))
    }

    #[cfg(not(feature = "tls"))]
    pub(super) fn secure(&self, _: &mut Connection, _: &mut WorkerContext<impl Service>) -> bool {
        false
    }

    /// Returns true if connections begin with plain HTTP.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.proxied
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use crate::tls::{ClientAuth, TlsConfig};

    #[test]
    fn required_client_certificates_are_refused_beside_the_clear() {
        let listen = |auth| Listen::new().tls(TlsConfig::new().self_signed(["localhost"]).client_auth(auth));
        let error = |listen: Listen| {
            listen.listener_setup(&Config::default()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        let required = || ClientAuth::Required("clients.pem".into());
        assert!(error(listen(required()).and_plain()).starts_with("client certificates are required"));
        // Either of them alone is judged by its file.
        assert!(error(listen(required())).contains("clients.pem: cannot be read"));
        assert!(error(listen(ClientAuth::Optional("clients.pem".into())).and_plain()).contains("cannot be read"));
        assert_eq!(error(listen(ClientAuth::None).and_plain()), "");
    }
}
