//! Replies: the responses of other servers.

use crate::handles::Table;
use crate::request::highwire_string;
use crate::result::{HIGHWIRE_NOT_FOUND, failed, give, guarded, highwire_result, text};
use bytes::Bytes;
use std::ffi::c_char;
use std::sync::Arc;

/// The response of another server.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_reply {
    /// Its number; 0 is none.
    pub id: u64,
}

/// A response.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) version: http::Version,
    pub(crate) fields: Vec<(Box<str>, Box<[u8]>)>,
    pub(crate) body: Bytes,
}

static REPLIES: Table<highwire_reply, Reply> = Table::new();

pub(crate) fn add(reply: Reply) -> highwire_reply {
    REPLIES.add(Arc::new(reply))
}

/// Gives the status of a reply.
///
/// # Safety
/// `out` must be NULL or point to an `unsigned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_status(reply: highwire_reply, out: *mut u32) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, REPLIES.get(reply)?.status.into(), "out") })
}

/// Gives the version of HTTP of a reply: 10, 11 or 20.
///
/// # Safety
/// `out` must be NULL or point to an `unsigned`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_version(reply: highwire_reply, out: *mut u32) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, crate::request::version_number(REPLIES.get(reply)?.version), "out") })
}

/// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter. Strings of
/// a reply are valid until it is freed.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_header(
    reply: highwire_reply,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        let reply = REPLIES.get(reply)?;
        let Some((_, value)) = reply.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) else {
            return failed(HIGHWIRE_NOT_FOUND, format!("the reply has no field {name:?}"));
        };
        // SAFETY: as the caller promises.
        unsafe { give(out, highwire_string::of(value), "out") }
    })
}

/// Gives the name, in lower case, and the value of the header field with this index, from 0 on, or `HIGHWIRE_NOT_FOUND`
/// after the last one.
///
/// # Safety
/// `name` and `value` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_header_at(
    reply: highwire_reply,
    index: usize,
    name: *mut highwire_string,
    value: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        let reply = REPLIES.get(reply)?;
        let Some((its_name, its_value)) = reply.fields.get(index) else {
            return failed(HIGHWIRE_NOT_FOUND, "the reply has fewer fields");
        };
        // SAFETY: as the caller promises.
        unsafe { give(name, highwire_string::of(its_name.as_bytes()), "name") }?;
        // SAFETY: as the caller promises.
        unsafe { give(value, highwire_string::of(its_value), "value") }
    })
}

/// Gives the body of a reply.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_reply_body(reply: highwire_reply, out: *mut highwire_string) -> highwire_result {
    // SAFETY: as the caller promises.
    guarded(|| unsafe { give(out, highwire_string::of(&REPLIES.get(reply)?.body), "out") })
}

/// Frees a reply.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_reply_free(reply: highwire_reply) -> highwire_result {
    guarded(|| REPLIES.remove(reply).map(drop))
}
