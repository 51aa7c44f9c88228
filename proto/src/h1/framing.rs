//! Derives from a head how its body ends and whether the connection stays open (RFC 9112 sections 6 and 9.3).
//!
//! Refuses a message that two parties could read differently, because request smuggling exploits the difference.

use crate::{Error, Form, Head, Known, Length, Method, Version, target};

const HOST_ONLY: u8 = Known::Host.bit();
const ANY_FRAMING: u8 = Known::Connection.bit()
    | Known::ContentLength.bit()
    | Known::TransferEncoding.bit()
    | Known::Expect.bit()
    | Known::Upgrade.bit();

/// Checks a request's head and fills in `length`, `keep_alive`, `expects_continue` and `upgrade`.
#[inline]
pub(super) fn request(window: &[u8], head: &mut Head) -> Result<(), Error> {
    host(window, head)?;
    if head.target.form == Form::Absolute {
        replace_host(window, head);
    }
    head.keep_alive = head.version == Version::Http11;
    if head.seen & ANY_FRAMING == 0 {
        head.upgrade = head.method == Method::Connect;
        return Ok(());
    }
    request_with_framing(window, head)
}

fn request_with_framing(window: &[u8], head: &mut Head) -> Result<(), Error> {
    let options = connection_options(window, head);
    head.keep_alive = match head.version {
        Version::Http11 | Version::Http2 => !options.close,
        Version::Http10 => options.keep_alive && !options.close,
    };
    let chunked = chunked(window, head)?;
    let length = content_length(window, head)?;
    head.length = match (chunked, length) {
        (true, Some(_)) => return Err(Error::LengthAndCoding),
        (true, None) => Length::Unknown,
        (false, Some(0)) | (false, None) => Length::Empty,
        (false, Some(length)) => Length::Exact(length),
    };
    if head.version == Version::Http11 && head.seen & Known::Expect.bit() != 0 {
        for field in head.fields.iter().filter(|field| field.known == Known::Expect) {
            if !field.value.of(window).eq_ignore_ascii_case(b"100-continue") {
                return Err(Error::UnknownExpectation);
            }
        }
        head.expects_continue = head.length != Length::Empty;
    }
    // RFC 9110 section 7.8: Upgrade is ignored in HTTP/1.0, and also if Connection does not list it.
    head.upgrade = head.method == Method::Connect
        || (head.version == Version::Http11 && options.upgrade && head.seen & Known::Upgrade.bit() != 0);
    Ok(())
}

/// Requires exactly one valid Host in HTTP/1.1, and at most one in HTTP/1.0 (RFC 9112 section 3.2).
#[inline]
fn host(window: &[u8], head: &mut Head) -> Result<(), Error> {
    if head.seen & HOST_ONLY == 0 {
        return if head.version == Version::Http10 { Ok(()) } else { Err(Error::MissingHost) };
    }
    if head.repeated & HOST_ONLY != 0 {
        return Err(Error::RepeatedHost);
    }
    // Nearly every client sends Host first.
    let first = match head.fields.first() {
        Some(field) if field.known == Known::Host => Some(field),
        _ => head.fields.iter().find(|field| field.known == Known::Host),
    };
    let Some(field) = first else { return Err(Error::MissingHost) };
    let host = field.value.of(window);
    // Most requests have the same host as the previous request, so a comparison usually replaces the check.
    if !host.is_empty() && host == head.last_host.as_slice() {
        return Ok(());
    }
    if !target::is_host(host) {
        return Err(Error::InvalidHost);
    }
    head.last_host.clear();
    head.last_host.extend_from_slice(host);
    Ok(())
}

/// Gives Host the authority of an absolute target (RFC 9112 section 3.2.2), so that code that reads the fields sees the
/// same host as code that reads the target.
#[cold]
fn replace_host(window: &[u8], head: &mut Head) {
    let authority = head.target.authority;
    if let Some(field) = head.fields.iter_mut().find(|field| field.known == Known::Host) {
        head.host_differs = !field.value.of(window).eq_ignore_ascii_case(authority.of(window));
        field.value = authority;
    }
}

struct Options {
    close: bool,
    keep_alive: bool,
    upgrade: bool,
}

/// Reads the options that matter here from all Connection fields (RFC 9110 section 7.6.1).
fn connection_options(window: &[u8], head: &Head) -> Options {
    let mut options = Options { close: false, keep_alive: false, upgrade: false };
    for field in head.fields.iter().filter(|field| field.known == Known::Connection) {
        for option in list(field.value.of(window)) {
            options.close |= option.eq_ignore_ascii_case(b"close");
            options.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            options.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }
    options
}

/// Returns the members of a comma-separated list, without the white space around them (RFC 9110 section 5.6.1).
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Returns true if the body is chunked. Refuses any other Transfer-Encoding: with 501 if `chunked` is the final coding
/// and occurs once, because we do not implement the others (RFC 9112 section 6.1), else with 400, because the length
/// cannot be determined (section 6.3). Several fields form one list (RFC 9110 section 5.3), but are always refused,
/// because another parser may read only one of them.
fn chunked(window: &[u8], head: &Head) -> Result<bool, Error> {
    let mut fields = head.fields.iter().filter(|field| field.known == Known::TransferEncoding);
    let Some(field) = fields.next() else { return Ok(false) };
    if head.version == Version::Http10 {
        return Err(Error::CodingInOldVersion);
    }
    if fields.next().is_none() && field.value.of(window).eq_ignore_ascii_case(b"chunked") {
        return if head.seen & Known::ContentLength.bit() == 0 { Ok(true) } else { Err(Error::LengthAndCoding) };
    }
    let is_chunked = |coding: &&[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let is_last = transfer_codings(window, head).last().is_some_and(|last| is_chunked(&last));
    let is_once = transfer_codings(window, head).filter(is_chunked).count() == 1;
    let well_formed = transfer_codings(window, head).all(|coding| !coding.is_empty());
    let is_known_to_end = is_last && is_once && well_formed;
    Err(if is_known_to_end { Error::UnknownTransferCoding } else { Error::InvalidTransferEncoding })
}

/// Returns the members of all Transfer-Encoding fields.
fn transfer_codings<'w>(window: &'w [u8], head: &'w Head) -> impl Iterator<Item = &'w [u8]> {
    let fields = head.fields.iter().filter(|field| field.known == Known::TransferEncoding);
    fields.flat_map(move |field| list(field.value.of(window)))
}

/// Reads Content-Length, which may have at most 19 digits. The largest such number fits 64 bits, so the conversion
/// cannot overflow.
fn content_length(window: &[u8], head: &Head) -> Result<Option<u64>, Error> {
    let mut fields = head.fields.iter().filter(|field| field.known == Known::ContentLength);
    let Some(field) = fields.next() else { return Ok(None) };
    if fields.next().is_some() {
        return Err(Error::RepeatedContentLength);
    }
    let digits = field.value.of(window);
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Error::InvalidContentLength);
    }
    Ok(Some(digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'))))
}

/// Checks a response's head and fills in `length`, `keep_alive` and `upgrade`, by the rules for responses of RFC 9112
/// section 6.3. `method` is the request's method.
pub(super) fn response(window: &[u8], head: &mut Head, method: Method) -> Result<(), Error> {
    if head.status == 101 && method == Method::Connect {
        // CONNECT opens a tunnel by a 2xx only (RFC 9110 section 9.3.6).
        return Err(Error::UnexpectedData);
    }
    let options = connection_options(window, head);
    head.keep_alive = match head.version {
        Version::Http11 | Version::Http2 => !options.close,
        Version::Http10 => options.keep_alive && !options.close,
    };
    head.upgrade = head.status == 101 || (method == Method::Connect && (200..300).contains(&head.status));
    if head.status < 200 || head.upgrade || matches!(head.status, 204 | 304) || method == Method::Head {
        head.length = Length::Empty;
        return Ok(());
    }
    let chunked = chunked(window, head)?;
    head.length = match content_length(window, head)? {
        Some(_) if chunked => return Err(Error::LengthAndCoding),
        Some(0) => Length::Empty,
        Some(length) => Length::Exact(length),
        None => Length::Unknown,
    };
    if !chunked && head.length == Length::Unknown {
        head.keep_alive = false;
    }
    Ok(())
}

/// Returns true if a response's body is chunked. The head must have been checked, and its length must be unknown.
pub(super) fn is_chunked(head: &Head) -> bool {
    head.seen & Known::TransferEncoding.bit() != 0
}

/// Returns the authority that a request is for: the target's, else the Host field's, else an empty slice.
pub(crate) fn authority<'w>(window: &'w [u8], head: &Head) -> &'w [u8] {
    match head.target.authority.of(window) {
        [] => head.known(Known::Host).map_or(&[], |field| field.value.of(window)),
        authority => authority,
    }
}

impl Head {
    /// Returns the authority that a request is for: the target's if it has one, else the Host field's (RFC 9112 section
    /// 3.3); empty if an HTTP/1.0 request has neither.
    pub fn authority<'w>(&self, window: &'w [u8]) -> &'w [u8] {
        authority(window, self)
    }
}
