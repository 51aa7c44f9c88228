//! The settings of a TLS server, as a program writes them. Nothing is read before [`TlsConfig::build`].

use super::error::LoadError;
use super::pem::Source;
use super::reload::Reload;
use super::tickets::Tickets;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// Tickets that a TLS 1.3 client gets after a full handshake, unless told otherwise: each connection that it resumes
/// brings another, so that one is enough for clients that keep one connection, and each costs 200 bytes and more.
pub const TICKETS_SENT: usize = 1;

/// The most tickets that a client gets at once: browsers open six connections to a host of HTTP/1.1.
pub const TICKETS_SENT_MAX: usize = 6;

/// Which versions of TLS a server speaks. Older ones are not offered by rustls: RFC 8996 retired them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// TLS 1.3 and 1.2.
    #[default]
    Tls12And13,
    /// TLS 1.3 only.
    Tls13,
    /// TLS 1.2 only, for tests of old clients.
    Tls12,
}

/// Whether clients present certificates. The path is a PEM file of the authorities that may issue them; the authorities
/// of browsers and systems are never trusted for this.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked.
    #[default]
    None,
    /// Clients are asked and may decline; a certificate that is presented has to be valid.
    Optional(PathBuf),
    /// A client without a valid certificate is refused.
    Required(PathBuf),
}

/// A TLS server's settings.
///
/// Defaults: TLS 1.2 and 1.3 with the cipher suites of rustls in its order, ALPN `h2`, `http/1.1` and `http/1.0`, no
/// client certificates, one ticket under keys in memory, no key log, no early data (RFC 8446 section 8: it can be
/// replayed).
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
    /// A setting that came where it makes no sense; `build` reports it.
    misplaced: Option<&'static str>,
}

/// A certificate and what belongs to it.
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
    /// Settings without a certificate, of which at least one is needed.
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

    /// Adds a certificate from PEM files: the chain, leaf first, and its private key, which may be the same file. The
    /// names that it serves are the DNS names in it; the first certificate is the default. Both files are watched.
    pub fn certificate_files(self, chain: impl Into<PathBuf>, key: impl Into<PathBuf>) -> TlsConfig {
        self.add(Origin::Pem { chain: Source::File(chain.into()), key: Source::File(key.into()) })
    }

    /// Adds a certificate as PEM in memory, as [`certificate_files`](TlsConfig::certificate_files) does from files.
    pub fn certificate_pem(self, chain: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> TlsConfig {
        let memory = |bytes: &[u8]| Source::Memory(Arc::from(bytes));
        self.add(Origin::Pem { chain: memory(chain.as_ref()), key: memory(key.as_ref()) })
    }

    /// Adds a certificate of our own making for these names or addresses, for development: no client trusts it unless
    /// told to. It is made anew by each [`build`](TlsConfig::build), for [`SELF_SIGNED_DAYS`](super::SELF_SIGNED_DAYS).
    pub fn self_signed<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> TlsConfig {
        self.add(Origin::SelfSigned(names.into_iter().map(Into::into).collect()))
    }

    /// Staples the OCSP response in this DER file to the certificate that was added last. The file is watched; fetching
    /// fresh responses into it is another program's work.
    pub fn ocsp_file(mut self, path: impl Into<PathBuf>) -> TlsConfig {
        match self.certificates.last_mut() {
            Some(entry) => entry.ocsp = Some(path.into()),
            None => self.misplaced = Some("an OCSP file comes before the certificate that it belongs to"),
        }
        self
    }

    /// Which versions are spoken.
    pub fn versions(mut self, versions: Versions) -> TlsConfig {
        self.versions = versions;
        self
    }

    /// The protocols above TLS (RFC 7301), the preferred one first. A client that offers none of them is refused; one
    /// that offers nothing begins with what it likes. An empty list turns the extension off.
    pub fn alpn<P: Into<Vec<u8>>>(mut self, protocols: impl IntoIterator<Item = P>) -> TlsConfig {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Keeps only those protocols that the engine speaks, in the order that was set.
    pub fn restrict_alpn(mut self, spoken: &[&[u8]]) -> TlsConfig {
        self.alpn.retain(|protocol| spoken.contains(&protocol.as_slice()));
        self
    }

    /// Whether clients present certificates.
    pub fn client_auth(mut self, client_auth: ClientAuth) -> TlsConfig {
        self.client_auth = client_auth;
        self
    }

    /// Where the keys of session tickets come from.
    pub fn tickets(mut self, tickets: Tickets) -> TlsConfig {
        self.tickets = tickets;
        self
    }

    /// How many tickets a TLS 1.3 client gets after its handshake: 0 to [`TICKETS_SENT_MAX`]. TLS 1.2 always sends one.
    pub fn tickets_sent(mut self, count: usize) -> TlsConfig {
        self.tickets_sent = count;
        self
    }

    /// Writes the secrets of every session to the file that the environment's `SSLKEYLOGFILE` names, for Wireshark.
    /// Whoever reads the file reads the traffic. Without this call the variable is ignored.
    pub fn log_keys(mut self) -> TlsConfig {
        self.log_keys = true;
        self
    }

    /// Reads all files and makes what connections need.
    ///
    /// # Errors
    /// The first file or setting that cannot be used, and why. A certificate that has expired is a warning only: it may
    /// be replaced while the server runs.
    pub fn build(self) -> Result<Reload, LoadError> {
        self.build_at(SystemTime::now())
    }

    /// [`build`](TlsConfig::build) at a time that the caller says.
    ///
    /// # Errors
    /// As `build`.
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
            return Err(LoadError::setting("an ALPN protocol has 1 to 255 bytes"));
        }
        Ok(())
    }

    /// The files that the reloader watches: a change to one rebuilds the configuration. Ticket keys are reread separately.
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
