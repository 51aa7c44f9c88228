//! The options of a listener, beside its address.

use crate::Result;
use crate::connection::Connection;
use crate::secure::ListenerTls;
#[cfg(feature = "tls")]
use crate::secure::Secure;
use crate::server::config::Config;
use crate::server::shared::Shared;
use crate::service::Service;
use crate::worker::context::WorkerContext;
#[cfg(feature = "tls")]
use std::sync::atomic::Ordering;

/// The options of a listener, for [`Server::listen_with`](crate::Server::listen_with).
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Listen {
    #[cfg(feature = "tls")]
    tls: Option<crate::tls::TlsConfig>,
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only a listener with TLS uses it"))]
    plain_too: bool,
    proxied: bool,
}

impl Listen {
    /// Creates the options of a listener for plain HTTP, without TLS.
    pub fn new() -> Listen {
        Listen::default()
    }

    /// Serves TLS: HTTP/2 to clients that offer it by ALPN, otherwise HTTP/1, as far as the settings allow. If a
    /// file that `config` names changes, such as a certificate or a key, the server loads it again within seconds; if
    /// that fails, it logs the error and keeps the old one.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, config: crate::tls::TlsConfig) -> Listen {
        self.tls = Some(config);
        self
    }

    /// Also serves connections without TLS. The first byte of a connection shows whether it uses TLS. The TLS
    /// configuration must not require client certificates, because a connection without TLS has none.
    #[cfg(feature = "tls")]
    pub fn and_plain(mut self) -> Listen {
        self.plain_too = true;
        self
    }

    /// Expects a header of HAProxy's PROXY protocol, version 1 or 2, at the beginning of each connection, and cuts
    /// connections that begin with anything else. Make sure that only the proxy can reach such an address, because any
    /// client could send a header with another client's address.
    pub fn proxy_protocol(mut self) -> Listen {
        self.proxied = true;
        self
    }

    /// Returns true if the listener uses neither TLS nor the PROXY protocol.
    pub(crate) fn is_plain(&self) -> bool {
        #[cfg(feature = "tls")]
        let has_tls = self.tls.is_some();
        #[cfg(not(feature = "tls"))]
        let has_tls = false;
        !has_tls && !self.proxied
    }

    /// Returns true if the listener serves connections without TLS.
    fn has_clear(&self) -> bool {
        #[cfg(feature = "tls")]
        return self.tls.is_none() || self.plain_too;
        #[cfg(not(feature = "tls"))]
        return true;
    }

    /// Checks the options and builds the TLS configuration. Returns an error if the options contradict each other or
    /// the settings, or the TLS configuration is wrong.
    pub(crate) fn listener_setup(self, config: &Config) -> Result<ListenerSetup> {
        if self.has_clear() && !config.http1 && !config.http2_cleartext {
            let text = "a listener without TLS needs http1 or http2_cleartext; both are turned off";
            return Err(crate::Error::Setting(text.to_string()));
        }
        #[cfg(feature = "tls")]
        let tls = match self.tls {
            None => None,
            Some(tls) if self.plain_too && tls.requires_client_certificates() => {
                return Err(crate::Error::Setting(
                    "client certificates are required (ClientAuth::Required), but connections without TLS, which have none, \
                     are served too (Listen::and_plain): remove and_plain, or serve plain HTTP at another address"
                        .to_string(),
                ));
            }
            Some(tls) => {
                let tls = match (config.http1, config.http2_tls) {
                    (true, true) => tls,
                    (true, false) => tls.restrict_alpn(&[b"http/1.1", b"http/1.0"]),
                    (false, true) => tls.restrict_alpn(&[b"h2"]),
                    (false, false) => {
                        let text = "a listener with TLS needs http1 or http2_tls; both are turned off";
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

/// Reloads the files of the TLS configurations that have changed. A worker calls it when its clock has reached another
/// tick; at most one call per second checks the files.
pub(crate) fn look_at_files(_setups: &[ListenerSetup], _shared: &Shared, _seconds: u64) {
    #[cfg(feature = "tls")]
    if !_setups.is_empty() && _shared.looked.fetch_max(_seconds, Ordering::Relaxed) < _seconds {
        _setups.iter().filter_map(|setup| setup.tls.as_ref()).for_each(|tls| drop(tls.reload.look()));
    }
}

/// The protocols with which the connections of one listener begin.
#[derive(Clone, Default)]
pub(crate) struct ListenerSetup {
    pub(crate) tls: Option<ListenerTls>,
    /// True if connections begin with the PROXY protocol.
    pub(crate) proxied: bool,
}

impl ListenerSetup {
    /// Gives a connection a TLS session. Returns false if the TLS configuration cannot be used or the memory budget has
    /// no room for the session.
    #[cfg(feature = "tls")]
    pub(crate) fn secure(&self, connection: &mut Connection, worker: &mut WorkerContext<impl Service>) -> bool {
        let secure = self.tls.as_ref().and_then(Secure::accept);
        secure.is_some_and(|secure| connection.secure(secure, worker))
    }

    #[cfg(not(feature = "tls"))]
    pub(crate) fn secure(&self, _: &mut Connection, _: &mut WorkerContext<impl Service>) -> bool {
        false
    }

    /// Returns true if the listener uses neither TLS nor the PROXY protocol.
    pub(crate) fn is_plain(&self) -> bool {
        self.tls.is_none() && !self.proxied
    }
}

#[cfg(all(test, feature = "self-signed"))]
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
        // With only one of the two options, the certificate file is read.
        assert!(error(listen(required())).contains("clients.pem: cannot be read"));
        assert!(error(listen(ClientAuth::Optional("clients.pem".into())).and_plain()).contains("cannot be read"));
        assert_eq!(error(listen(ClientAuth::None).and_plain()), "");
    }
}
