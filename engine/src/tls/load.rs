//! Loads certificates, keys and authorities, and builds rustls's configuration from them.

use super::config::{ClientAuth, Entry, Origin, TlsConfig, Versions};
use super::error::{LoadError, LoadFault, place};
use super::pem::{Source, certificates, private_key, read_file};
use super::resolve::Resolver;
use super::tickets::{Binding, TicketKeys, Ticketer};
use super::{der, development};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, KeyLogFile, RootCertStore, ServerConfig, SupportedProtocolVersion, version};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

/// The largest OCSP response that is loaded, in bytes. A full handshake sends it to a client that asks for it. Usual
/// responses have 0.5 to 2 KiB.
pub const OCSP_BYTES: usize = 16 * 1024;

/// A certificate that a server has loaded, for dashboards and warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// The source of the certificate, such as `certificate /etc/tls/site.pem`.
    pub place: String,
    /// The DNS names that the certificate serves, in lower case, including wildcards such as `*.example.com`.
    pub names: Vec<String>,
    /// The certificate's subject in the format of RFC 4514.
    pub subject: String,
    /// The start of the certificate's validity.
    pub not_before: SystemTime,
    /// The end of the certificate's validity.
    pub not_after: SystemTime,
}

/// The result of loading all files.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    pub(super) certificates: Vec<CertificateInfo>,
}

/// Creates the self-signed certificates of the settings once, so that later reloads use the same ones.
pub(super) fn make_self_signed(settings: &mut TlsConfig, now: SystemTime) -> Result<(), LoadError> {
    for entry in &mut settings.certificates {
        if let Origin::SelfSigned(names) = &entry.origin {
            let (chain, key) = development::self_signed(names, now)?;
            let memory = |text: String| Source::Memory(Arc::from(text.into_bytes()));
            entry.origin = Origin::Pem { chain: memory(chain), key: memory(key) };
        }
    }
    Ok(())
}

/// Reads all files except the ticket keys, and builds the configuration.
pub(super) fn load(
    settings: &TlsConfig,
    tickets: Option<&Arc<TicketKeys>>,
    now: SystemTime,
) -> Result<Loaded, LoadError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut resolver = Resolver::default();
    let mut infos = Vec::new();
    for entry in &settings.certificates {
        let (key, info) = certificate(entry, &provider)?;
        warn_of_dates(&info, now);
        resolver.add(key, &info.names);
        infos.push(info);
    }
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions(settings.versions))
        .map_err(|error| LoadError::setting(error.to_string()))?;
    let (mut config, binding) = match &settings.client_auth {
        ClientAuth::None => (builder.with_no_client_auth().with_cert_resolver(Arc::new(resolver)), Binding::default()),
        ClientAuth::Optional(path) | ClientAuth::Required(path) => {
            let authorities = certificates(AUTHORITIES, &Source::File(path.to_owned()))?;
            let optional = matches!(settings.client_auth, ClientAuth::Optional(_));
            let binding = binding(&authorities, optional);
            let verifier = verifier(path, authorities, &provider)?;
            let verifier = if optional { verifier.allow_unauthenticated() } else { verifier };
            let verifier = verifier.build().map_err(|error| {
                LoadError::new(place(AUTHORITIES, path), LoadFault::BadCertificate(error.to_string()))
            })?;
            (builder.with_client_cert_verifier(verifier).with_cert_resolver(Arc::new(resolver)), binding)
        }
    };
    config.alpn_protocols = settings.alpn.clone();
    // Clients keep their sessions in tickets, because a store of sessions in the server would be memory that peers can
    // fill.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if let Some(keys) = tickets {
        config.send_tls13_tickets = settings.tickets_sent;
        config.ticketer = Arc::new(Ticketer::new(keys.clone(), binding));
    }
    if settings.log_keys {
        config.key_log = Arc::new(KeyLogFile::new());
    }
    Ok(Loaded { config: Arc::new(config), certificates: infos })
}

const CERTIFICATE: &str = "certificate";
const AUTHORITIES: &str = "client authorities";

fn certificate(entry: &Entry, provider: &CryptoProvider) -> Result<(CertifiedKey, CertificateInfo), LoadError> {
    let Origin::Pem { chain: chain_source, key: key_source } = &entry.origin else {
        // `make_self_signed` has replaced these origins. If it has not, an error is better than a panic.
        return Err(LoadError::setting("a self-signed certificate was not made"));
    };
    let chain_place = chain_source.place(CERTIFICATE);
    let chain = certificates(CERTIFICATE, chain_source)?;
    let facts = der::facts(&chain[0])
        .ok_or_else(|| LoadError::new(&chain_place, LoadFault::BadCertificate("it is not X.509".to_owned())))?;
    let key = provider
        .key_provider
        .load_private_key(private_key("private key", key_source)?)
        .map_err(|error| LoadError::new(key_source.place("private key"), LoadFault::BadKey(error.to_string())))?;
    let mut certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // `Unknown` means that the key does not reveal its public half, so a mismatch cannot be detected.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => {
            return Err(LoadError::new(key_source.place("private key"), LoadFault::KeyMismatch(chain_place)));
        }
        Err(error) => return Err(LoadError::new(chain_place, LoadFault::BadCertificate(error.to_string()))),
    }
    certified.ocsp = entry.ocsp.as_deref().map(ocsp).transpose()?;
    let info = CertificateInfo {
        place: chain_place,
        names: facts.names,
        subject: facts.subject,
        not_before: facts.not_before,
        not_after: facts.not_after,
    };
    Ok((certified, info))
}

fn ocsp(path: &Path) -> Result<Vec<u8>, LoadError> {
    const WHAT: &str = "OCSP response";
    let bytes = read_file(WHAT, path)?;
    let fail = |fault| Err(LoadError::new(place(WHAT, path), fault));
    if bytes.len() > OCSP_BYTES {
        return fail(LoadFault::TooLarge(OCSP_BYTES as u64));
    }
    if !der::is_sequence(&bytes) {
        return fail(LoadFault::NotOcsp);
    }
    Ok(bytes)
}

fn warn_of_dates(info: &CertificateInfo, now: SystemTime) {
    let CertificateInfo { place, names, .. } = info;
    if now > info.not_after {
        tracing::warn!(target: "highwire::tls", %place, ?names, "the certificate has expired; clients will refuse it");
    } else if now < info.not_before {
        tracing::warn!(target: "highwire::tls", %place, ?names, "the certificate is not valid yet; clients will refuse it");
    }
    if names.is_empty() {
        tracing::warn!(target: "highwire::tls", %place, "the certificate has no DNS names; it can only serve as the default");
    }
}

fn versions(versions: Versions) -> &'static [&'static SupportedProtocolVersion] {
    static BOTH: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match versions {
        Versions::Tls12And13 => &BOTH,
        Versions::Tls13 => &BOTH[..1],
        Versions::Tls12 => &BOTH[1..],
    }
}

fn verifier(
    path: &Path,
    authorities: Vec<CertificateDer<'static>>,
    provider: &Arc<CryptoProvider>,
) -> Result<rustls::server::ClientCertVerifierBuilder, LoadError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots
            .add(authority)
            .map_err(|error| LoadError::new(place(AUTHORITIES, path), LoadFault::BadCertificate(error.to_string())))?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()))
}

/// Returns the binding of tickets for a server with client certificates: a hash of the authorities that may issue these
/// certificates and of whether clients must have one.
fn binding(authorities: &[CertificateDer<'_>], optional: bool) -> Binding {
    let mut context = ::aws_lc_rs::digest::Context::new(&::aws_lc_rs::digest::SHA256);
    context.update(if optional { b"optional" } else { b"required" });
    for authority in authorities {
        context.update(&(authority.len() as u64).to_be_bytes());
        context.update(authority);
    }
    let mut binding = Binding::default();
    binding.copy_from_slice(context.finish().as_ref());
    binding
}
