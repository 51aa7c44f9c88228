//! Reads certificates and keys in PEM (RFC 7468), from files or from memory. The errors name the source and the fault.

use super::error::{LoadError, LoadFault, place};
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The size in bytes of the largest file that is read: about four times the size of a list of all public authorities.
/// Without a limit, a wrong path, such as that of a disk image, could fill the memory.
pub const FILE_BYTES: u64 = 4 << 20;

/// The source of a certificate or key.
#[derive(Clone, Debug)]
pub(super) enum Source {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

impl Source {
    pub(super) fn path(&self) -> Option<&PathBuf> {
        match self {
            Source::File(path) => Some(path),
            Source::Memory(_) => None,
        }
    }

    /// Returns the name of this source for errors.
    pub(super) fn place(&self, what: &str) -> String {
        match self {
            Source::File(path) => place(what, path),
            Source::Memory(_) => format!("{what} from memory"),
        }
    }

    pub(super) fn read(&self, what: &str) -> Result<Vec<u8>, LoadError> {
        let bytes = match self {
            Source::File(path) => read_file(what, path)?,
            Source::Memory(bytes) => bytes.to_vec(),
        };
        // Some editors begin a file with a byte order mark.
        match bytes.strip_prefix(b"\xef\xbb\xbf") {
            Some(text) => Ok(text.to_vec()),
            None => Ok(bytes),
        }
    }
}

/// Reads a whole file of at most [`FILE_BYTES`].
pub(super) fn read_file(what: &str, path: &Path) -> Result<Vec<u8>, LoadError> {
    let fail = |fault| LoadError::new(place(what, path), fault);
    let unreadable = |error: std::io::Error| fail(LoadFault::Unreadable(error.to_string()));
    let mut bytes = Vec::new();
    // Reads at most one byte more than the limit, which shows that a file is too large. That also limits a source
    // without a size, such as a pipe.
    File::open(path).and_then(|file| file.take(FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES { Err(fail(LoadFault::TooLarge(FILE_BYTES))) } else { Ok(bytes) }
}

/// Returns the certificates of a source, in the order in which the source contains them. Returns an error if there is
/// none.
pub(super) fn certificates(what: &str, source: &Source) -> Result<Vec<CertificateDer<'static>>, LoadError> {
    let bytes = source.read(what)?;
    let fail = |fault| LoadError::new(source.place(what), fault);
    match CertificateDer::pem_slice_iter(&bytes).collect::<Result<Vec<_>, _>>() {
        Ok(found) if found.is_empty() => Err(fail(nothing(&bytes, LoadFault::NoCertificate))),
        Ok(found) => Ok(found),
        Err(error) => Err(fail(LoadFault::NotPem(broken(&error)))),
    }
}

/// Returns the first private key, in the format PKCS #8, PKCS #1 or SEC 1.
pub(super) fn private_key(what: &str, source: &Source) -> Result<PrivateKeyDer<'static>, LoadError> {
    let bytes = source.read(what)?;
    let fail = |fault| LoadError::new(source.place(what), fault);
    match PrivateKeyDer::from_pem_slice(&bytes) {
        Ok(key) => Ok(key),
        // Old files say `Proc-Type: 4,ENCRYPTED` in a section that looks like a key.
        Err(_) if contains(&bytes, b"ENCRYPTED") => Err(fail(LoadFault::EncryptedKey)),
        Err(PemError::NoItemsFound) => Err(fail(nothing(&bytes, LoadFault::NoKey))),
        Err(error) => Err(fail(LoadFault::NotPem(broken(&error)))),
    }
}

/// Returns the reason why no item was found: the bytes are not PEM, or they are PEM without the wanted item
/// (`missing`).
fn nothing(bytes: &[u8], missing: LoadFault) -> LoadFault {
    if bytes.is_empty() {
        LoadFault::NotPem("it is empty".to_owned())
    } else if contains(bytes, b"-----BEGIN ") {
        missing
    } else if bytes.first() == Some(&0x30) {
        LoadFault::NotPem("it looks like DER; convert it, for instance with `openssl`".to_owned())
    } else {
        LoadFault::NotPem("it has no line `-----BEGIN ...`".to_owned())
    }
}

fn broken(error: &PemError) -> String {
    match error {
        PemError::MissingSectionEnd { .. } => "a section has no end".to_owned(),
        PemError::IllegalSectionStart { .. } => "a `-----BEGIN ...` line is broken".to_owned(),
        PemError::Base64Decode(_) => "its base64 is broken".to_owned(),
        other => other.to_string(),
    }
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}
