//! Requests as a program's handler sees them: the functions that read them.

use crate::current::{Current, defer, deferred_request, handle_of_current, with_current};
use crate::deferred::Deferred;
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_NOT_FOUND, HIGHWIRE_OK, HIGHWIRE_WRONG_STATE, failed, give, guarded,
    highwire_result, text,
};
use highwire::{BodyUse, Peer, Request};
use percent_encoding::percent_decode_str;
use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::ptr;

/// A request: a number that is never used again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_request {
    /// Its number; 0 is none.
    pub id: u64,
}

/// Bytes that the library owns. They do not end with a NUL, and decoded ones may contain one. Print them with `%.*s` and
/// `(int)string.length`, if `data` is not NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct highwire_string {
    /// The first byte, or NULL if there is nothing.
    pub data: *const c_char,
    /// The number of bytes.
    pub length: usize,
}

impl highwire_string {
    pub(crate) const NONE: highwire_string = highwire_string { data: ptr::null(), length: 0 };

    pub(crate) fn of(bytes: &[u8]) -> highwire_string {
        highwire_string { data: bytes.as_ptr().cast(), length: bytes.len() }
    }
}

/// Handles a request. `data` is what was given with the route. The handler answers with `highwire_respond` or another
/// function, or it returns and answers later on the same thread, or it calls `highwire_request_defer` and answers later from
/// any thread.
pub type highwire_handler = Option<unsafe extern "C" fn(request: highwire_request, data: *mut c_void)>;

/// A value of the program that is passed to its callbacks.
#[derive(Clone, Copy)]
pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: the library never uses the pointer, and passes it to the program's callbacks on any thread, as documented.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}

/// Returns a method, a target, or another part of a request.
pub(crate) fn any_part<R>(
    handle: highwire_request,
    borrowed: impl FnOnce(&Request<'_>) -> Option<R>,
    kept: impl FnOnce(&Deferred) -> Option<R>,
) -> Option<R> {
    part(handle, |current| borrowed(current.request()), kept).ok()
}

/// Finds a part of a request: in the borrowed one, or in the copy of a deferred one.
fn part<R>(
    handle: highwire_request,
    borrowed: impl FnOnce(&mut Current) -> Option<R>,
    kept: impl FnOnce(&Deferred) -> Option<R>,
) -> Result<R, Failed> {
    let found = match with_current(handle, |current| match current.deferred.clone() {
        None => Ok(borrowed(current)),
        // The strings must live as long as the request, and not only until its handler returns.
        Some(deferred) => Err(deferred),
    }) {
        Some(Ok(found)) => found,
        Some(Err(deferred)) => kept(&deferred),
        None => kept(&*deferred_request(handle)?),
    };
    found.ok_or((HIGHWIRE_NOT_FOUND, "the request has no such part".to_string()))
}

/// Checks that the route of a request takes its body whole.
fn check_whole(handle: highwire_request) -> Result<(), Failed> {
    let body_use = match with_current(handle, |current| current.body_use) {
        Some(body_use) => body_use,
        None => deferred_request(handle)?.body_use,
    };
    if body_use == BodyUse::Whole {
        return Ok(());
    }
    failed(HIGHWIRE_WRONG_STATE, "the route does not take the body whole: it needs HIGHWIRE_BODY_WHOLE")
}

/// Gives a part of a request: see [`part`].
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
unsafe fn give_part(
    out: *mut highwire_string,
    request: highwire_request,
    borrowed: impl FnOnce(&mut Current) -> Option<highwire_string>,
    kept: impl FnOnce(&Deferred) -> Option<highwire_string>,
) -> highwire_result {
    guarded(|| {
        let found = part(request, borrowed, kept)?;
        // SAFETY: as the caller promises.
        unsafe { give(out, found, "out") }
    })
}

/// Gives a part of a request that has a name.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
unsafe fn give_named_part(
    out: *mut highwire_string,
    request: highwire_request,
    name: *const c_char,
    borrowed: impl FnOnce(&mut Current, &str) -> Option<highwire_string>,
    kept: impl FnOnce(&Deferred, &str) -> Option<highwire_string>,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        let found = part(request, |current| borrowed(current, name), |deferred| kept(deferred, name));
        let found = found.map_err(|(code, text)| {
            (code, if code == HIGHWIRE_NOT_FOUND { format!("{text}: {name:?}") } else { text })
        })?;
        // SAFETY: as the caller promises.
        unsafe { give(out, found, "out") }
    })
}

fn string(text: &str) -> Option<highwire_string> {
    Some(highwire_string::of(text.as_bytes()))
}

/// Gives the method, such as `GET`. Strings are valid until the request's handler returns; those that are given
/// after `highwire_request_defer`, or after the handler has returned, are valid until the request is answered.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_method(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_part(out, request, |current| string(current.request().method()), |deferred| string(deferred.method()))
    }
}

/// Gives the whole target as it was sent.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_target(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_part(out, request, |current| string(current.request().target()), |deferred| string(deferred.target()))
    }
}

/// Gives the path as it was sent, without the query. It may be percent-encoded.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_path(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { give_part(out, request, |current| string(current.request().path()), |deferred| string(deferred.path())) }
}

/// Gives the query as it was sent, without the question mark, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_query(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_part(
            out,
            request,
            |current| current.request().query().and_then(string),
            |deferred| deferred.query().and_then(string),
        )
    }
}

/// Gives the host that the request is for, such as `example.com:8080`. It is empty if the request names none.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_authority(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_part(
            out,
            request,
            |current| string(current.request().authority()),
            |deferred| string(deferred.authority()),
        )
    }
}

/// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_header(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| current.request().header(name).map(highwire_string::of),
            |deferred, name| deferred.header(name).map(highwire_string::of),
        )
    }
}

/// Gives the name, as it was sent, and the value of the header field with this index, from 0 on, or `HIGHWIRE_NOT_FOUND`
/// behind the last one. Fields have the order in which they were sent.
///
/// # Safety
/// `name` and `value` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_header_at(
    request: highwire_request,
    index: usize,
    name: *mut highwire_string,
    value: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        let strings = |(name, value): (&str, &[u8])| (highwire_string::of(name.as_bytes()), highwire_string::of(value));
        let (its_name, its_value) = part(
            request,
            |current| current.request().headers().nth(index).map(strings),
            |deferred| deferred.headers().nth(index).map(strings),
        )?;
        // SAFETY: as the caller promises.
        unsafe { give(name, its_name, "name") }?;
        // SAFETY: as the caller promises.
        unsafe { give(value, its_value, "value") }
    })
}

/// Gives the decoded value of a parameter of the route's path, such as `id` of `/users/{id}`, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// As [`highwire_request_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let value = current.request().params().get(name)?;
                Some(current.keep(value))
            },
            |deferred, name| deferred.param(name),
        )
    }
}

/// Gives the decoded value of the first parameter of that name in the query, or `HIGHWIRE_NOT_FOUND`, also if the
/// value is not UTF-8. A name without a value has an empty one.
///
/// # Safety
/// As [`highwire_request_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_query_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let value = form_value(current.request().query()?, name)?;
                Some(current.keep(value))
            },
            |deferred, name| Some(deferred.keep(form_value(deferred.query()?, name)?)),
        )
    }
}

/// Gives the decoded value of the first field of that name in a body of `application/x-www-form-urlencoded`, or
/// `HIGHWIRE_NOT_FOUND`. Returns `HIGHWIRE_WRONG_STATE` if the route does not take the body whole.
///
/// # Safety
/// As [`highwire_request_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_form_param(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    let checked = guarded(|| check_whole(request));
    if checked != HIGHWIRE_OK {
        return checked;
    }
    let is_form = |content_type: Option<&[u8]>| {
        let essence = content_type.unwrap_or_default().split(|&byte| byte == b';').next().unwrap_or_default();
        essence.trim_ascii().eq_ignore_ascii_case(b"application/x-www-form-urlencoded")
    };
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let body = current.body();
                let body =
                    std::str::from_utf8(&body).ok().filter(|_| is_form(current.request().header("content-type")))?;
                let value = form_value(body, name)?;
                Some(current.keep(value))
            },
            |deferred, name| {
                let body =
                    std::str::from_utf8(&deferred.body).ok().filter(|_| is_form(deferred.header("content-type")))?;
                Some(deferred.keep(form_value(body, name)?))
            },
        )
    }
}

/// Gives the value of a cookie, without the quotes around it, or `HIGHWIRE_NOT_FOUND`.
///
/// # Safety
/// As [`highwire_request_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_cookie(
    request: highwire_request,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_named_part(
            out,
            request,
            name,
            |current, name| {
                let mut lines = current.request().headers().filter(|(field, _)| field.eq_ignore_ascii_case("cookie"));
                lines.find_map(|(_, value)| cookie(value, name)).map(highwire_string::of)
            },
            |deferred, name| {
                let mut lines = deferred.headers().filter(|(field, _)| field.eq_ignore_ascii_case("cookie"));
                lines.find_map(|(_, value)| cookie(value, name)).map(highwire_string::of)
            },
        )
    }
}

fn cookie<'v>(line: &'v [u8], name: &str) -> Option<&'v [u8]> {
    line.split(|&byte| byte == b';').find_map(|pair| {
        let at = pair.iter().position(|&byte| byte == b'=')?;
        let value = pair[at + 1..].trim_ascii();
        let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
        (pair[..at].trim_ascii() == name.as_bytes()).then_some(value)
    })
}

/// Returns the decoded value of a name in urlencoded pairs.
fn form_value(pairs: &str, name: &str) -> Option<String> {
    let decoded = |text: &str| -> Option<String> {
        let text: Cow<'_, str> = if text.contains('+') { text.replace('+', " ").into() } else { text.into() };
        percent_decode_str(&text).decode_utf8().ok().map(Cow::into_owned)
    };
    pairs.split('&').find_map(|pair| {
        let (its, value) = pair.split_once('=').unwrap_or((pair, ""));
        if decoded(its)? == name { decoded(value) } else { None }
    })
}

/// Gives the body of a request. It is empty if there is none. Returns `HIGHWIRE_WRONG_STATE` if the route does not take it whole.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_body(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        check_whole(request)?;
        // `current` keeps the bytes until the handler returns.
        let borrowed = |current: &mut Current| Some(highwire_string::of(&current.body()));
        let body = part(request, borrowed, |deferred| Some(highwire_string::of(&deferred.body)))?;
        // SAFETY: as the caller promises.
        unsafe { give(out, body, "out") }
    })
}

/// Gives the address of the peer, such as `192.0.2.1:5000`, or `unix` for a unix socket. The peer is the client or a proxy.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_peer(
    request: highwire_request,
    out: *mut highwire_string,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe {
        give_part(
            out,
            request,
            |current| {
                let peer = peer_text(current.request().peer());
                Some(current.keep(peer))
            },
            |deferred| string(&deferred.peer),
        )
    }
}

pub(crate) fn peer_text(peer: Peer) -> String {
    match peer {
        Peer::Internet(address, port) => std::net::SocketAddr::new(address, port).to_string(),
        Peer::Local => "unix".to_string(),
    }
}

/// Gives the version of HTTP: 10, 11 or 20.
///
/// # Safety
/// `out` must be NULL or point to an `unsigned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_version(request: highwire_request, out: *mut u32) -> highwire_result {
    guarded(|| {
        let version = match with_current(request, |current| current.request().version()) {
            Some(version) => version,
            None => deferred_request(request)?.version,
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, version_number(version), "out") }
    })
}

/// Returns a version of HTTP as programs see it.
pub(crate) fn version_number(version: http::Version) -> u32 {
    match version {
        http::Version::HTTP_10 => 10,
        http::Version::HTTP_2 => 20,
        _ => 11,
    }
}

/// Gives 1 if the request arrived under TLS, and 0 otherwise.
///
/// # Safety
/// `out` must be NULL or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_is_secure(request: highwire_request, out: *mut i32) -> highwire_result {
    guarded(|| {
        let is_secure = match with_current(request, |current| current.request().is_secure()) {
            Some(is_secure) => is_secure,
            None => deferred_request(request)?.is_secure,
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, i32::from(is_secure), "out") }
    })
}

/// Makes the request one that may be answered from any thread, later. Call it in the handler before another thread gets the
/// handle. Strings of the request that were given before are valid only until the handler returns; those that are given
/// after this are valid until the request is answered.
///
/// The program must answer each deferred request, even if its client is gone, because the answer frees it.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_request_defer(request: highwire_request) -> highwire_result {
    guarded(|| defer(request).map(drop))
}

/// Returns `HIGHWIRE_OK` if the client still waits for the answer, `HIGHWIRE_GONE` if it is gone or a deadline has passed.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_request_is_wanted(request: highwire_request) -> highwire_result {
    guarded(|| {
        if handle_of_current(request) || deferred_request(request)?.is_wanted() {
            return Ok(());
        }
        failed(HIGHWIRE_GONE, "the client is gone, or a time limit has passed")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded() {
        for (pairs, name, expected) in [
            ("a=1&b=2", "b", Some("2")),
            ("a=1&a=2", "a", Some("1")),
            ("a", "a", Some("")),
            ("a%20b=c+d%21", "a b", Some("c d!")),
            ("a=%ff", "a", None),
            ("", "a", None),
        ] {
            assert_eq!(form_value(pairs, name).as_deref(), expected, "{pairs}");
        }
        for (line, name, expected) in
            [("a=1; b=2", "b", Some("2")), ("a=\"x\"", "a", Some("x")), ("aa=1", "a", None), ("a", "a", None)]
        {
            assert_eq!(cookie(line.as_bytes(), name), expected.map(str::as_bytes), "{line}");
        }
    }
}
