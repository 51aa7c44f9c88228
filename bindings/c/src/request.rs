//! Requests as a program's handler sees them: the functions that read them.

use crate::current::{Current, body_use, defer, deferred_request, handle_of_current, with_current};
use crate::deferred::Deferred;
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_NOT_FOUND, HIGHWIRE_WRONG_STATE, failed, give, guarded, highwire_result, text,
};
use highwire::{BodyUse, Peer, Request};
use std::ffi::{c_char, c_void};
use std::ptr;

/// A request: a number that is never used again.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_request {
    /// Its number; 0 is none.
    pub id: u64,
}

/// Bytes that the library owns. They do not end with a NUL, and decoded strings may contain one. Print them with `%.*s`
/// and `(int)string.length`, if `data` is not NULL.
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

    /// Returns the bytes.
    ///
    /// # Safety
    /// The bytes live as long as the result is used.
    pub(crate) unsafe fn bytes<'b>(self) -> &'b [u8] {
        if self.data.is_null() {
            return &[];
        }
        // SAFETY: the library has made the string of a slice, and the caller promises that it still lives.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.length) }
    }
}

/// Handles a request. `data` is the pointer that was given with the route. The handler answers with `highwire_respond`
/// or another function, or it returns and answers later on the same thread, or it calls `highwire_request_defer` and
/// answers later from any thread.
pub type highwire_handler = Option<unsafe extern "C" fn(request: highwire_request, data: *mut c_void)>;

/// Returns a method, a target, or another part of a request.
pub(crate) fn any_part<R>(
    handle: highwire_request,
    borrowed: impl FnOnce(&Request<'_>) -> Option<R>,
    kept: impl FnOnce(&Deferred) -> Option<R>,
) -> Option<R> {
    part(handle, |current| borrowed(current.request()), kept).ok()
}

/// Finds a part of a request: in the borrowed one, or in the copy of a deferred one.
pub(crate) fn part<R>(
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
    found.ok_or((HIGHWIRE_NOT_FOUND, "the request has no such field, parameter or form".to_string()))
}

/// Checks that the route of a request takes its body whole.
pub(crate) fn check_whole(handle: highwire_request) -> Result<(), Failed> {
    if body_use(handle)? == BodyUse::Whole {
        return Ok(());
    }
    let text = "the body cannot be read here: a hook gets none, and a route must be added with HIGHWIRE_BODY_WHOLE";
    failed(HIGHWIRE_WRONG_STATE, text)
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

/// Gives a named part of a request.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
pub(crate) unsafe fn give_named_part(
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

pub(crate) fn string(text: &str) -> Option<highwire_string> {
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

/// Gives the name, as it was sent, and the value of the header field with this index, from 0 on, or
/// `HIGHWIRE_NOT_FOUND` after the last one. Fields have the order in which they were sent.
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

/// Gives the body of a request, which may be empty. Returns `HIGHWIRE_WRONG_STATE` if the route does not take the body
/// whole.
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

/// Gives 1 if the request arrived over TLS, and 0 otherwise.
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

/// Defers the request: any thread may then answer it later. Call it in the handler before another thread gets the
/// handle. Strings that the request has given before are valid only until the handler returns; those that it gives
/// later, until it is answered.
///
/// The program must answer each deferred request, even if its client is gone, because the answer frees the request.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_request_defer(request: highwire_request) -> highwire_result {
    guarded(|| defer(request).map(drop))
}

/// Returns `HIGHWIRE_OK` if the client still waits for the answer, `HIGHWIRE_GONE` if it is gone or a deadline has
/// passed. Over HTTP/1, a client that shuts down its sending side counts as gone after a second.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_request_is_wanted(request: highwire_request) -> highwire_result {
    guarded(|| {
        if handle_of_current(request) || deferred_request(request)?.is_wanted() {
            return Ok(());
        }
        failed(HIGHWIRE_GONE, "the client is gone, or a time limit has passed")
    })
}
