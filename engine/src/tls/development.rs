//! Creates self-signed certificates for development. Browsers and other clients must be configured to trust them.

use super::error::LoadError;
#[cfg(feature = "self-signed")]
use rcgen::{CertificateParams, KeyPair};
use std::time::SystemTime;
#[cfg(feature = "self-signed")]
use std::time::UNIX_EPOCH;

/// The number of days for which a self-signed certificate is valid after its creation. Apple's clients refuse
/// certificates that are valid for more than 825 days. A restart of the server creates a new certificate.
pub const SELF_SIGNED_DAYS: u64 = 365;

/// Without the feature, says what is missing.
#[cfg(not(feature = "self-signed"))]
pub(super) fn self_signed(names: &[String], _: SystemTime) -> Result<(String, String), LoadError> {
    let text = "it needs the feature `self-signed` of the crate highwire";
    Err(LoadError::setting(format!("self-signed certificate for {names:?}: {text}")))
}

/// Creates an ECDSA P-256 key and a certificate for these names or addresses. Returns the certificate and the key as
/// PEM.
#[cfg(feature = "self-signed")]
pub(super) fn self_signed(names: &[String], now: SystemTime) -> Result<(String, String), LoadError> {
    let fail = |error: rcgen::Error| LoadError::setting(format!("self-signed certificate for {names:?}: {error}"));
    if names.is_empty() {
        return Err(LoadError::setting("a self-signed certificate needs at least one name"));
    }
    let mut params = CertificateParams::new(names.to_vec()).map_err(fail)?;
    let today = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    // The certificate is valid since yesterday, because a client's clock may be behind ours.
    let [(year, month, day), (last_year, last_month, last_day)] =
        [today.saturating_sub(1), today + SELF_SIGNED_DAYS].map(date);
    params.not_before = rcgen::date_time_ymd(year, month, day);
    params.not_after = rcgen::date_time_ymd(last_year, last_month, last_day);
    params.distinguished_name.push(rcgen::DnType::CommonName, names[0].clone());
    let key = KeyPair::generate().map_err(fail)?;
    let certificate = params.self_signed(&key).map_err(fail)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(feature = "self-signed")]
/// Returns the date that is `days` days after 1970-01-01: year, month and day.
fn date(mut days: u64) -> (i32, u8, u8) {
    let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    // `days` is 30 at most now.
    (year, month, days as u8 + 1)
}

#[cfg(all(test, feature = "self-signed"))]
mod tests {
    use super::date;

    #[test]
    fn dates_are_counted_from_1970() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (58, (1970, 2, 28)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (20_777, (2026, 11, 20)),
            (20_818, (2026, 12, 31)),
            (20_819, (2027, 1, 1)),
        ] {
            assert_eq!(date(days), expected, "{days}");
        }
    }
}
