//! Responses: made piece by piece or at once, and given to their request.

use crate::current::with_current;
use crate::deferred;
use crate::handles::{Table, missing};
use crate::request::{highwire_request, highwire_string};
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_NOT_FOUND, HIGHWIRE_WRONG_STATE, bytes, failed, give,
    guarded, highwire_result, text, text_or_none,
};
use bytes::Bytes;
use highwire::{HeaderName, HeaderValue, IntoResponse, Reply, Response, StatusCode, header};
use highwire_engine::response::Content;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// A response that is being made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_response {
    /// Its number; 0 is none.
    pub id: u64,
}

/// A response that the program is building, on any thread.
pub(crate) struct Draft {
    status: StatusCode,
    fields: Vec<(HeaderName, HeaderValue)>,
    trailers: Vec<(HeaderName, HeaderValue)>,
    /// The body. If it is `None`, a response that a hook changes keeps its own body.
    body: Option<Bytes>,
    closes: bool,
    /// The body in parts, in place of `body`.
    pub(crate) stream: Option<crate::stream::Reading>,
    /// Trailers that are known only at the end of the body, in place of `trailers`.
    pub(crate) late_trailers: Option<LateTrailers>,
}

/// Trailers that a program gives at the end of a body.
pub(crate) type LateTrailers = Arc<Mutex<Vec<(HeaderName, HeaderValue)>>>;

static DRAFTS: Table<highwire_response, Mutex<Draft>> = Table::new();

/// Adds a draft to the table.
pub(crate) fn add_draft(draft: Draft) -> highwire_response {
    DRAFTS.add(Arc::new(Mutex::new(draft)))
}

impl Draft {
    pub(crate) fn new(status: u32) -> Result<Draft, Failed> {
        let code = u16::try_from(status).ok().filter(|status| (200..=999).contains(status));
        match code.and_then(|status| StatusCode::from_u16(status).ok()) {
            Some(status) => Ok(Draft::of(status)),
            None => {
                failed(HIGHWIRE_INVALID_ARGUMENT, format!("{status} is not the status of a final response, 200 to 999"))
            }
        }
    }

    /// Returns a draft with a status that is valid.
    pub(crate) fn of(status: StatusCode) -> Draft {
        Draft {
            status,
            fields: Vec::new(),
            trailers: Vec::new(),
            body: None,
            closes: false,
            stream: None,
            late_trailers: None,
        }
    }

    /// Adds a header field. The library itself writes those that frame the message.
    pub(crate) fn add_header(&mut self, name: &str, value: &[u8]) -> Result<(), Failed> {
        let (name, value) = field(name, value)?;
        if name == header::CONNECTION {
            self.closes = value.as_bytes().eq_ignore_ascii_case(b"close");
        } else if name != header::CONTENT_LENGTH && name != header::TRANSFER_ENCODING {
            self.fields.push((name, value));
        }
        Ok(())
    }

    /// Replaces the header fields of a name. Without a value they are removed.
    pub(crate) fn set_header(&mut self, name: &str, value: Option<&[u8]>) -> Result<(), Failed> {
        let (its, _) = field(name, value.unwrap_or_default())?;
        if its == header::CONNECTION {
            self.closes = false;
        }
        // The first one keeps its place.
        let at = self.fields.iter().position(|(known, _)| *known == its);
        self.fields.retain(|(known, _)| *known != its);
        let Some(value) = value else { return Ok(()) };
        self.add_header(name, value)?;
        if let Some(at) = at
            && let Some(field) = self.fields.pop()
        {
            self.fields.insert(at, field);
        }
        Ok(())
    }

    /// Returns the parts of a response that a hook may change.
    pub(crate) fn of_response(response: &Response) -> Draft {
        let fields = response.headers();
        let fields = fields.filter_map(|(name, value)| Some((name.clone(), HeaderValue::from_bytes(value).ok()?)));
        Draft { fields: fields.collect(), ..Draft::of(response.status()) }
    }

    /// Applies a hook's changes to a response.
    pub(crate) fn change(self, response: &mut Response) {
        let mut changed = std::mem::replace(response, Response::new(self.status));
        changed.remove_header(&header::CONTENT_TYPE);
        changed.set_status(self.status);
        *changed.own_headers() = self.fields;
        if let Some(body) = self.body {
            *changed.content_mut() = Content::Bytes(body);
        }
        *response = if self.closes { changed.and_close() } else { changed };
    }

    /// Returns the header fields, and true if the connection shall close.
    pub(crate) fn into_fields(self) -> (Vec<(HeaderName, HeaderValue)>, bool) {
        (self.fields, self.closes)
    }

    pub(crate) fn set_body(&mut self, body: Bytes) {
        self.body = Some(body);
    }

    pub(crate) fn set_closes(&mut self, closes: bool) {
        self.closes = closes;
    }

    pub(crate) fn add_trailer(&mut self, name: &str, value: &[u8]) -> Result<(), Failed> {
        self.trailers.push(field(name, value)?);
        Ok(())
    }
}

/// Returns a header field.
pub(crate) fn field(name: &str, value: &[u8]) -> Result<(HeaderName, HeaderValue), Failed> {
    let Ok(name) = HeaderName::from_bytes(name.as_bytes()) else {
        return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{name:?} is not a name of a header field"));
    };
    match HeaderValue::from_bytes(value) {
        Ok(value) => Ok((name, value)),
        Err(_) => {
            failed(HIGHWIRE_INVALID_ARGUMENT, format!("the value of {name} has a line end or another control byte"))
        }
    }
}

impl IntoResponse for Draft {
    fn into_response(self) -> Response {
        let Draft { status, fields, trailers, body, closes, stream, late_trailers } = self;
        let mut response = match stream {
            Some(reading) => {
                let mut response = reading.into_response();
                // The program has named the media type, or there is none.
                response.remove_header(&header::CONTENT_TYPE);
                response
            }
            None => match body {
                Some(body) if !body.is_empty() => without_type(body),
                _ => Response::new(status),
            },
        };
        response.set_status(status);
        *response.own_headers() = fields;
        if let Some(late) = late_trailers {
            let take = move || std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner));
            response = response.with_trailers(take);
        } else if !trailers.is_empty() {
            response = response.with_trailers(|| trailers);
        }
        if closes { response.and_close() } else { response }
    }
}

/// Answers a request with a draft or a response. The handle of the request is invalid from now on, but its strings are
/// valid until its handler returns.
pub(crate) fn answer(request: highwire_request, draft: Draft) -> Result<(), Failed> {
    answer_with(request, draft, Draft::into_response)
}

/// Answers a request whose handler runs on this thread and has not deferred it. Returns false for any other request.
pub(crate) fn answer_here(request: highwire_request, make: impl FnOnce() -> Response) -> bool {
    with_current(request, |current| {
        let is_here = current.answer.is_none() && current.deferred.is_none();
        if is_here {
            current.answer = Some(make());
        }
        is_here
    })
    .unwrap_or(false)
}

pub(crate) fn answer_with<T: Send + 'static>(
    request: highwire_request,
    value: T,
    make: fn(T) -> Response,
) -> Result<(), Failed> {
    let mut value = Some(value);
    let here = with_current(request, |current| {
        if current.answer.is_some() {
            return Some(Err(()));
        }
        if current.deferred.is_some() {
            return None;
        }
        current.answer = value.take().map(make);
        Some(Ok(()))
    });
    match here {
        Some(Some(Ok(()))) => return Ok(()),
        Some(Some(Err(()))) => return failed(HIGHWIRE_WRONG_STATE, "the request was answered already"),
        Some(None) | None => {}
    }
    let (Some(reply), Some(value)) = (deferred::take(request), value) else {
        return Err(missing(request));
    };
    send(request, reply, value, make)
}

/// Answers a deferred request with a body in parts. The request's own body can still be read, until the response is dropped.
pub(crate) fn answer_beside_body(request: highwire_request, draft: Draft) -> Result<(), Failed> {
    let Some(reply) = deferred::take_reply(request) else { return Err(missing(request)) };
    send(request, reply, draft, Draft::into_response)
}

fn send<T: Send + 'static>(
    request: highwire_request,
    reply: Reply,
    value: T,
    make: fn(T) -> Response,
) -> Result<(), Failed> {
    if !reply.is_wanted() {
        return failed(HIGHWIRE_GONE, "the client is gone, or a time limit has passed");
    }
    reply.send(Later { request, value, make });
    Ok(())
}

/// A response that is made on the request's worker.
struct Later<T> {
    request: highwire_request,
    value: T,
    make: fn(T) -> Response,
}

impl<T: Send> IntoResponse for Later<T> {
    fn into_response(self) -> Response {
        if deferred::get(self.request).is_none() {
            crate::receive::forget(self.request);
        }
        (self.make)(self.value)
    }
}

/// Media types that need no copy, because they are constants.
const KNOWN_TYPES: &[&str] = &[
    "text/plain",
    "text/plain; charset=utf-8",
    "text/html; charset=utf-8",
    "application/json",
    "application/octet-stream",
];

/// Answers a request: with this status, media type and body. `content_type` may be NULL. The bytes are copied.
///
/// # Safety
/// `content_type` must be NULL or end with a NUL; `body` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_respond(
    request: highwire_request,
    status: u32,
    content_type: *const c_char,
    body: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let body = unsafe { bytes(body.cast(), length, "body") }?;
        let draft = Draft::new(status)?;
        let body = Bytes::copy_from_slice(body);
        if content_type.is_null() {
            return answer_with(request, (draft.status, body), |(status, body)| {
                if body.is_empty() { Response::new(status) } else { without_type(body).with_status(status) }
            });
        }
        // SAFETY: as the caller promises.
        let content_type = unsafe { text(content_type, "content_type") }?;
        match KNOWN_TYPES.iter().find(|known| **known == content_type) {
            Some(known) => answer_with(request, (draft.status, *known, body), |(status, content_type, body)| {
                Response::bytes(content_type, body).with_status(status)
            }),
            None => {
                let mut draft = draft;
                draft.add_header("content-type", content_type.as_bytes())?;
                draft.set_body(body);
                answer(request, draft)
            }
        }
    })
}

/// Returns a response without a media type.
pub(crate) fn without_type(body: Bytes) -> Response {
    let mut response = Response::bytes("", body);
    response.remove_header(&header::CONTENT_TYPE);
    response
}

/// Makes a response with this status, 200 to 999. Give it to a request with `highwire_respond_with`, or free it with
/// `highwire_response_free`.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_response`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_new(status: u32, out: *mut highwire_response) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return crate::result::null("out");
        }
        let handle = add_draft(Draft::new(status)?);
        // SAFETY: as the caller promises.
        unsafe { give(out, handle, "out") }
    })
}

fn change(response: highwire_response, act: impl FnOnce(&mut Draft) -> Result<(), Failed>) -> Result<(), Failed> {
    act(&mut DRAFTS.get(response)?.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Changes the status.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_response_status(response: highwire_response, status: u32) -> highwire_result {
    guarded(|| {
        let new = Draft::new(status)?.status;
        change(response, |draft| {
            draft.status = new;
            Ok(())
        })
    })
}

/// Adds a header field. The library itself writes `Content-Length`, `Transfer-Encoding` and `Connection`, and ignores
/// such fields here, but `Connection: close` closes the connection after the response. A `Date` replaces the library's.
///
/// # Safety
/// `name` and `value` must be NULL or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_header(
    response: highwire_response,
    name: *const c_char,
    value: *const c_char,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { add(response, name, value, Draft::add_header) }
}

/// Sets a header field in place of all fields of that name. NULL as the value removes them.
///
/// # Safety
/// As [`highwire_response_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_set_header(
    response: highwire_response,
    name: *const c_char,
    value: *const c_char,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (name, value) = unsafe { (text(name, "name")?, text_or_none(value, "value")?) };
        change(response, |draft| draft.set_header(name, value.map(str::as_bytes)))
    })
}

/// Gives the status of a response.
///
/// # Safety
/// `out` must be NULL or point to a `uint32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_get_status(response: highwire_response, out: *mut u32) -> highwire_result {
    guarded(|| {
        change(response, |draft| {
            // SAFETY: as the caller promises.
            unsafe { give(out, draft.status.as_u16().into(), "out") }
        })
    })
}

/// Gives the value of the first header field of that name, or `HIGHWIRE_NOT_FOUND`. The case of the name does not matter. The string is
/// valid until the response is changed, freed or given to a request, or until the hook that got the response returns.
///
/// # Safety
/// `name` must be NULL or end with a NUL; `out` must be NULL or point to a `highwire_string`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_get_header(
    response: highwire_response,
    name: *const c_char,
    out: *mut highwire_string,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name, "name") }?;
        change(response, |draft| {
            let Some((_, value)) = draft.fields.iter().find(|(its, _)| its.as_str().eq_ignore_ascii_case(name)) else {
                return failed(HIGHWIRE_NOT_FOUND, format!("the response has no field {name:?}"));
            };
            // SAFETY: as the caller promises.
            unsafe { give(out, highwire_string::of(value.as_bytes()), "out") }
        })
    })
}

/// Adds a trailer field, which follows a body that is sent in parts. The hooks of an app cannot add one.
///
/// # Safety
/// As [`highwire_response_header`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_trailer(
    response: highwire_response,
    name: *const c_char,
    value: *const c_char,
) -> highwire_result {
    // SAFETY: as the caller promises.
    unsafe { add(response, name, value, Draft::add_trailer) }
}

/// Adds a field with one of the methods of `Draft`.
///
/// # Safety
/// `name` and `value` must be NULL or end with a NUL.
unsafe fn add(
    response: highwire_response,
    name: *const c_char,
    value: *const c_char,
    how: fn(&mut Draft, &str, &[u8]) -> Result<(), Failed>,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let (name, value) = unsafe { (text(name, "name")?, text(value, "value")?) };
        change(response, |draft| how(draft, name, value.as_bytes()))
    })
}

/// Sets the body. The bytes are copied.
///
/// # Safety
/// `body` must point to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_response_body(
    response: highwire_response,
    body: *const c_void,
    length: usize,
) -> highwire_result {
    guarded(|| {
        // SAFETY: as the caller promises.
        let body = unsafe { bytes(body.cast(), length, "body") }?;
        change(response, |draft| {
            draft.set_body(Bytes::copy_from_slice(body));
            Ok(())
        })
    })
}

/// Answers a request with a response, and frees the response, even on failure.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_respond_with(request: highwire_request, response: highwire_response) -> highwire_result {
    guarded(|| answer(request, take(response)?))
}

/// Frees a response that was not given to a request.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_response_free(response: highwire_response) -> highwire_result {
    guarded(|| take(response).map(drop))
}

/// Removes a draft from its table.
pub(crate) fn take(response: highwire_response) -> Result<Draft, Failed> {
    let draft = DRAFTS.remove(response)?;
    let mut draft = draft.lock().unwrap_or_else(PoisonError::into_inner);
    let empty = Draft::new(200)?;
    Ok(std::mem::replace(&mut draft, empty))
}
