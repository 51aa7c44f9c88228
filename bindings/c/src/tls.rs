//! TLS settings of servers: certificates of the server and of its clients.

use crate::handles::Table;
use crate::request::{highwire_request, highwire_string, part};
use crate::result::{Failed, give, guarded, highwire_result, null, text};
use highwire_engine::ClientCertificate;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, PoisonError};

/// TLS settings of a server.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_tls {
    /// Its number; 0 is none.
    pub id: u64,
}

#[cfg(feature = "tls")]
pub(crate) type Settings = highwire::tls::TlsConfig;

/// A library without TLS makes none of these.
#[cfg(not(feature = "tls"))]
#[derive(Clone)]
pub(crate) struct Settings;

#[cfg(not(feature = "tls"))]
pub(crate) fn unsupported<T>() -> Result<T, Failed> {
    crate::result::failed(highwire_result::HIGHWIRE_UNSUPPORTED, "this library was built without TLS")
}

static SETTINGS: Table<highwire_tls, Mutex<Settings>> = Table::new();

/// Makes TLS settings without a certificate. Give them to a server with `highwire_server_listen_tls_with`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_tls`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_tls_new(out: *mut highwire_tls) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let handle = SETTINGS.add(Arc::new(Mutex::new(new()?)));
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

/// Adds a certificate: its chain and its private key, which may be in the same file, in the format PEM. The files are
/// read when the server listens, and again when they change. A server may have several certificates, and each serves
/// the names in it; a client that asks for none of these names gets the first certificate.
///
/// # Safety
/// The texts must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_tls_certificate(
    tls: highwire_tls,
    certificate_file: *const c_char,
    key_file: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (chain, key) = unsafe { (text(certificate_file, "certificate_file")?, text(key_file, "key_file")?) };
        change(tls, |settings| add_certificate(settings, chain, key))
    })
}

/// Adds a self-signed certificate for a name or an address, for development: no client trusts it.
///
/// # Safety
/// `name` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_tls_self_signed(tls: highwire_tls, name: *const c_char) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        change(tls, |settings| add_own_certificate(settings, name))
    })
}

/// Asks clients for a certificate that one of the authorities in this PEM file has issued. If `is_required` is 0, a
/// client may send none; otherwise, the handshake of such a client fails.
///
/// # Safety
/// `root_file` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_tls_client_roots(
    tls: highwire_tls,
    root_file: *const c_char,
    is_required: i32,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let roots = unsafe { text(root_file, "root_file") }?;
        change(tls, |settings| ask_clients(settings, roots, is_required != 0))
    })
}

/// Frees TLS settings that were not given to a server.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_tls_free(tls: highwire_tls) -> highwire_result {
    guarded(|| take(tls).map(drop))
}

fn change(tls: highwire_tls, act: impl FnOnce(Settings) -> Settings) -> Result<(), Failed> {
    let settings = SETTINGS.get(tls)?;
    let mut settings = settings.lock().unwrap_or_else(PoisonError::into_inner);
    *settings = act(settings.clone());
    Ok(())
}

/// Takes settings out of their table.
pub(crate) fn take(tls: highwire_tls) -> Result<Settings, Failed> {
    let settings = SETTINGS.remove(tls)?;
    Ok(settings.lock().unwrap_or_else(PoisonError::into_inner).clone())
}

/// Returns settings with a certificate of files.
pub(crate) fn with_certificate(chain: &str, key: &str) -> Result<Settings, Failed> {
    new().map(|settings| add_certificate(settings, chain, key))
}

/// Returns settings with a self-signed certificate.
pub(crate) fn with_own_certificate(name: &str) -> Result<Settings, Failed> {
    new().map(|settings| add_own_certificate(settings, name))
}

#[cfg(feature = "tls")]
mod supported {
    use super::{Failed, Settings};
    use highwire::tls::ClientAuth;

    #[expect(clippy::unnecessary_wraps, reason = "a library without TLS has no settings")]
    pub(super) fn new() -> Result<Settings, Failed> {
        Ok(Settings::new())
    }

    pub(super) fn add_certificate(settings: Settings, chain: &str, key: &str) -> Settings {
        settings.certificate_files(chain, key)
    }

    pub(super) fn add_own_certificate(settings: Settings, name: &str) -> Settings {
        settings.self_signed([name])
    }

    pub(super) fn ask_clients(settings: Settings, roots: &str, is_required: bool) -> Settings {
        let roots = roots.into();
        settings.client_auth(if is_required { ClientAuth::Required(roots) } else { ClientAuth::Optional(roots) })
    }
}

#[cfg(not(feature = "tls"))]
mod supported {
    use super::{Failed, Settings, unsupported};

    pub(super) fn new() -> Result<Settings, Failed> {
        unsupported()
    }

    pub(super) fn add_certificate(settings: Settings, _: &str, _: &str) -> Settings {
        settings
    }

    pub(super) fn add_own_certificate(settings: Settings, _: &str) -> Settings {
        settings
    }

    pub(super) fn ask_clients(settings: Settings, _: &str, _: bool) -> Settings {
        settings
    }
}

use supported::{add_certificate, add_own_certificate, ask_clients, new};

/// Gives the client's certificate, which the server has verified, in DER format, or `HIGHWIRE_NOT_FOUND`: see
/// `highwire_tls_client_roots`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_client_certificate(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_of_certificate(request, out, |certificate| Some(&certificate.der)) }
}

/// Gives the subject of the client's certificate in the notation of RFC 4514, such as `CN=alice,O=Example`, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_client_subject(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_of_certificate(request, out, |certificate| certificate.subject.as_deref().map(str::as_bytes)) }
}

/// Gives a part of the client's certificate.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
unsafe fn give_of_certificate(
    request: highwire_request,
    out: *mut highwire_string,
    of: fn(&ClientCertificate) -> Option<&[u8]>,
) -> highwire_result {
    guarded(|| {
        let found = part(
            request,
            |current| {
                let certificate = current.request().tls()?.client?;
                let value = of(&certificate)?.to_vec();
                Some(current.keep(value))
            },
            |deferred| of(deferred.certificate.as_ref()?).map(highwire_string::of),
        )?;
        // SAFETY: as the caller promises.
        unsafe { give(out, found, "out") }
    })
}
