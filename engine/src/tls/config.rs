//! The settings of a TLS server. No file is read before [`TlsConfig::build`].

use super::error::LoadError;
use super::pem::Source;
use super::reload::Reload;
use super::tickets::Tickets;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The default number of tickets that a TLS 1.3 client gets after a handshake. One is enough for a client that keeps
/// one connection, because each resumed connection brings another ticket. A ticket has 200 bytes or more.
pub const TICKETS_SENT: usize = 1;

/// The largest permitted number of tickets after a handshake. It is the number of connections that browsers usually
/// open to an HTTP/1.1 host.
pub const TICKETS_SENT_MAX: usize = 6;

/// The TLS versions that a server offers. rustls supports no version before 1.2; RFC 8996 deprecates 1.0 and 1.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Versions {
    /// TLS 1.3 and 1.2.
    #[default]
    Tls12And13,
    /// TLS 1.3 only.
    Tls13,
    /// TLS 1.2 only, for tests of old clients.
    Tls12,
}

/// The server's rule for client certificates. The path names a PEM file of the authorities that may issue them. The
/// authorities that the system or browsers trust are not used for this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClientAuth {
    /// The server does not ask for a certificate.
    #[default]
    None,
    /// The server asks for a certificate. The client may send none, but one that it sends must be valid.
    Optional(PathBuf),
    /// A client without a valid certificate is refused.
    Required(PathBuf),
}

/// The settings of a TLS server.
///
/// The defaults are TLS 1.2 and 1.3 with the default cipher suites of rustls; ALPN `h2`, `http/1.1` and `http/1.0`; no
/// client certificates; one ticket after a handshake, with keys in memory; and no key log. Early data is never
/// accepted, because it can be replayed (RFC 8446 section 8).
#[derive(Clone, Debug)]
#[must_use]
pub struct TlsConfig {
    pub(super) certificates: Vec<Entry>,
    pub(super) versions: Versions,
    pub(super) alpn: Vec<Vec<u8>>,
    pub(super) client_auth: ClientAuth,
    pub(super) tickets: Tickets,
    pub(super) tickets_sent: usize,
    pub(super) log_keys: bool,
    /// The error text for a setting made in the wrong order, which `build` returns.
    misplaced: Option<&'static str>,
}

/// A certificate of the settings: the origin of its chain and key, and its OCSP file, if it has one.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) origin: Origin,
    pub(super) ocsp: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub(super) enum Origin {
    Pem { chain: Source, key: Source },
    SelfSigned(Vec<String>),
}

impl Default for TlsConfig {
    fn default() -> TlsConfig {
        TlsConfig::new()
    }
}

impl TlsConfig {
    /// Creates settings without a certificate. Add at least one before [`build`](TlsConfig::build).
    pub fn new() -> TlsConfig {
        TlsConfig {
            certificates: Vec::new(),
            versions: Versions::default(),
            alpn: [&b"h2"[..], b"http/1.1", b"http/1.0"].map(<[u8]>::to_vec).to_vec(),
            client_auth: ClientAuth::default(),
            tickets: Tickets::default(),
            tickets_sent: TICKETS_SENT,
            log_keys: false,
            misplaced: None,
        }
    }

    /// Adds a certificate from PEM files: the chain, with the leaf first, and its private key, which may be in the same
    /// file. The certificate serves the DNS names in it. The certificate that is added first is also the default.
    /// [`Reload::look`] loads the files again when one of them changes.
    pub fn certificate_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsConfig {
        self.add(Origin::Pem { chain: Source::File(chain.into()), key: Source::File(key.into()) })
    }

    /// Adds a certificate as PEM in memory, as [`certificate_files`](TlsConfig::certificate_files) does from files.
    pub fn certificate_pem(self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> TlsConfig {
        let memory = |bytes: &[u8]| Source::Memory(Arc::from(bytes));
        self.add(Origin::Pem { chain: memory(chain.as_ref()), key: memory(key.as_ref()) })
    }

    /// Adds a self-signed certificate for these names or addresses, for development. Clients do not trust it unless
    /// they are configured to. Each [`build`](TlsConfig::build) creates another one, valid for
    /// [`SELF_SIGNED_DAYS`](super::SELF_SIGNED_DAYS) days. This needs the feature `self-signed`; without it, `build` returns an error.
    pub fn self_signed<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> TlsConfig {
        self.add(Origin::SelfSigned(names.into_iter().map(Into::into).collect()))
    }

    /// Staples the OCSP response in this DER file to the certificate that was added last. [`Reload::look`] loads the
    /// file again when it changes; another program must put fresh responses into it.
    pub fn ocsp_file(mut self, path: impl Into<PathBuf>) -> TlsConfig {
        match self.certificates.last_mut() {
            Some(entry) => entry.ocsp = Some(path.into()),
            None => self.misplaced = Some("the OCSP file has no certificate; add a certificate before it"),
        }
        self
    }

    /// Sets the TLS versions that the server offers. The default is 1.2 and 1.3.
    pub fn versions(mut self, versions: Versions) -> TlsConfig {
        self.versions = versions;
        self
    }

    /// Sets the protocols for ALPN (RFC 7301), the preferred one first. A client that offers only other protocols is
    /// refused; a client without ALPN is accepted. An empty list turns ALPN off.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> TlsConfig {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Removes the ALPN protocols that are not in `spoken`, and keeps the order of the others.
    pub fn restrict_alpn(mut self, spoken: &[&[u8]]) -> TlsConfig {
        self.alpn.retain(|protocol| spoken.contains(&protocol.as_slice()));
        self
    }

    /// Sets the rule for client certificates. The default is [`ClientAuth::None`].
    pub fn client_auth(mut self, client_auth: ClientAuth) -> TlsConfig {
        self.client_auth = client_auth;
        self
    }

    /// Sets the source of the keys of session tickets. The default is [`Tickets::InMemory`].
    pub fn tickets(mut self, tickets: Tickets) -> TlsConfig {
        self.tickets = tickets;
        self
    }

    /// Sets the number of tickets that a TLS 1.3 client gets after its handshake: 0 to [`TICKETS_SENT_MAX`]. The
    /// default is [`TICKETS_SENT`]. The number does not apply to TLS 1.2, in which a client gets at most one ticket.
    pub fn tickets_sent(mut self, count: usize) -> TlsConfig {
        self.tickets_sent = count;
        self
    }

    /// Writes the secrets of every session to the file that the environment variable `SSLKEYLOGFILE` names, for tools
    /// such as Wireshark. A reader of the file can decrypt the traffic. Without this call the variable is ignored.
    pub fn log_keys(mut self) -> TlsConfig {
        self.log_keys = true;
        self
    }

    /// Reads all files and creates the configuration for connections.
    ///
    /// # Errors
    /// Returns an error for the first file or setting that cannot be used. A certificate that has expired only causes a
    /// warning in the log, because it may be replaced while the server runs.
    pub fn build(self) -> Result<Reload, LoadError> {
        self.build_at(SystemTime::now())
    }

    /// Does the same as [`build`](TlsConfig::build), with `now` as the current time.
    ///
    /// # Errors
    /// Returns the errors of `build`.
    pub fn build_at(self, now: SystemTime) -> Result<Reload, LoadError> {
        self.check()?;
        Reload::new(self, now)
    }

    /// Returns true if a client without a certificate is refused.
    pub(crate) fn requires_client_certificates(&self) -> bool {
        matches!(self.client_auth, ClientAuth::Required(_))
    }

    fn add(mut self, origin: Origin) -> TlsConfig {
        self.certificates.push(Entry { origin, ocsp: None });
        self
    }

    fn check(&self) -> Result<(), LoadError> {
        if let Some(text) = self.misplaced {
            return Err(LoadError::setting(text));
        }
        if self.certificates.is_empty() {
            return Err(LoadError::setting("there is no certificate"));
        }
        if self.tickets_sent > TICKETS_SENT_MAX {
            return Err(LoadError::setting(format!("tickets_sent is more than {TICKETS_SENT_MAX}")));
        }
        // RFC 7301 section 3.1: a name has 1 to 255 bytes.
        if self.alpn.iter().any(|protocol| protocol.is_empty() || protocol.len() > 255) {
            return Err(LoadError::setting("an ALPN protocol must have 1 to 255 bytes"));
        }
        Ok(())
    }

    /// Returns the files whose change makes [`Reload::look`] load everything again. The ticket key file is not among
    /// them, because it is read separately.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for entry in &self.certificates {
            if let Origin::Pem { chain, key } = &entry.origin {
                files.extend(chain.path().cloned());
                files.extend(key.path().cloned());
            }
            files.extend(entry.ocsp.clone());
        }
        if let ClientAuth::Optional(path) | ClientAuth::Required(path) = &self.client_auth {
            files.push(path.clone());
        }
        files
    }
}
