//! Forms of `multipart/form-data`: each field is given to a callback of the program, part by part.

use crate::current::defer;
use crate::data::Data;
use crate::deferred;
use crate::receive;
use crate::request::{highwire_request, highwire_string};
use crate::result::{
    Failed, HIGHWIRE_GONE, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_OK, HIGHWIRE_WRONG_STATE, HIGHWIRE_WRONG_THREAD, failed,
    guarded, highwire_result, null,
};
use bytes::Bytes;
use highwire::form::{Fault, Limits, MultipartError};
use highwire::{Body, BodyUse, Multipart};
use highwire_engine::body::BodyQueue;
use highwire_engine::context::Spawner;
use std::cell::RefCell;
use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;

/// A field of a form. Its strings are valid until the callback returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct highwire_field {
    /// The name.
    pub name: highwire_string,
    /// The name of the file as the client has sent it, which may be a path; `data` is NULL if the field is no file.
    pub file_name: highwire_string,
    /// A name under which the file can be stored: without folders and without characters that are special on some
    /// system. `data` is NULL if the field is no file, or if nothing is left of its name. Two files may have the same
    /// name.
    pub safe_file_name: highwire_string,
    /// The media type that the client has sent, or NULL.
    pub content_type: highwire_string,
}

/// Gets a part of a field, on the worker's thread. Its bytes are valid until the callback returns. At the end of each
/// field `length` is 0. After the last field, `field` is NULL and `result` is `HIGHWIRE_OK`. If the form is malformed,
/// or a limit is exceeded, `field` is NULL and `result` is `HIGHWIRE_INVALID_ARGUMENT`; if the body ends early, it is
/// `HIGHWIRE_GONE`; `highwire_last_error` has the reason. The callback returns 0 to go on; after another value it is
/// not called again. A callback that writes to a disk keeps the worker's other connections waiting; give the bytes to
/// another thread if the disk is slow. A form cannot be paused.
pub type highwire_field_callback = Option<
    unsafe extern "C" fn(
        request: highwire_request,
        result: highwire_result,
        field: *const highwire_field,
        part: *const c_void,
        length: usize,
        data: *mut c_void,
    ) -> i32,
>;

/// Reads the body of a request as `multipart/form-data`, and passes its fields to the callback, later. The route must
/// take the body whole or in parts; in parts, the body may have any length. Only the thread of the request's worker may
/// call this. A form has at most 1,000 fields.
///
/// Returns `HIGHWIRE_INVALID_ARGUMENT` if the body is no such form. The request is deferred: answer it when the
/// callback gets NULL as `field`, or returns another value than 0.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_request_multipart(
    request: highwire_request,
    callback: highwire_field_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return null("callback") };
        let program = Program { request, callback, data: Data(data) };
        let deferred = defer(request)?;
        let content_type = deferred.header("content-type").unwrap_or_default();
        // Reports another media type before the body is taken.
        check(Multipart::new(content_type, Body::empty()))?;
        let (body, spawner) = match deferred.body_use {
            BodyUse::Parts => {
                let waiting = receive::take(request)?;
                (waiting.body, waiting.spawner)
            }
            BodyUse::Whole => (of_bytes(&deferred.body), Spawner::here()),
            BodyUse::None => return failed(HIGHWIRE_WRONG_STATE, "the route takes no body"),
        };
        let Some(spawner) = spawner else {
            return failed(HIGHWIRE_WRONG_THREAD, "only the request's worker may read its body");
        };
        let unlimited = Limits::default().part_bytes(u64::MAX).total_bytes(u64::MAX);
        let form = check(Multipart::new(content_type, body))?.limited(unlimited);
        spawner.spawn(program.read(form));
        Ok(())
    })
}

fn check(form: Result<Multipart, highwire::Response>) -> Result<Multipart, Failed> {
    form.or_else(|_| failed(HIGHWIRE_INVALID_ARGUMENT, "the body is not multipart/form-data with a boundary"))
}

/// Returns a body of these bytes.
fn of_bytes(bytes: &[u8]) -> Body {
    let mut queue = BodyQueue::default();
    queue.push(bytes);
    queue.finish(Ok(()), Vec::new());
    Body::new(Rc::new(RefCell::new(queue)))
}

/// The callback of the program, and what it gets.
struct Program {
    request: highwire_request,
    callback: unsafe extern "C" fn(
        highwire_request,
        highwire_result,
        *const highwire_field,
        *const c_void,
        usize,
        *mut c_void,
    ) -> i32,
    data: Data,
}

impl Program {
    /// Reads a form to its end, or until the callback stops it.
    async fn read(self, mut form: Multipart) {
        let _awaiting = receive::Awaiting::new(self.request);
        let read = self.read_fields(&mut form).await;
        // The program does not wait for this body any more.
        drop(form);
        receive::forget(self.request);
        if deferred::get(self.request).is_none() {
            return;
        }
        match read {
            Ok(true) => drop(self.tell(HIGHWIRE_OK, None, &Bytes::new())),
            Ok(false) => {}
            Err(error) => {
                let code =
                    if matches!(error.fault, Fault::Body(_)) { HIGHWIRE_GONE } else { HIGHWIRE_INVALID_ARGUMENT };
                let result = guarded(|| failed(code, error.to_string()));
                self.tell(result, None, &Bytes::new());
            }
        }
    }

    /// Returns false if the callback has stopped it.
    async fn read_fields(&self, form: &mut Multipart) -> Result<bool, MultipartError> {
        while let Some(part) = form.next().await {
            let mut part = part?;
            loop {
                let chunk = part.chunk().await?;
                let is_end = chunk.is_none();
                let bytes = chunk.unwrap_or_default();
                if bytes.is_empty() && !is_end {
                    continue;
                }
                let safe = part.safe_file_name();
                let string = |text: Option<&str>| {
                    text.map_or(highwire_string::NONE, |text| highwire_string::of(text.as_bytes()))
                };
                let field = highwire_field {
                    name: string(Some(part.name())),
                    file_name: string(part.file_name()),
                    safe_file_name: string(safe.as_deref()),
                    content_type: string(part.content_type()),
                };
                // The request may have been answered meanwhile.
                if deferred::get(self.request).is_none() || !self.tell(HIGHWIRE_OK, Some(&field), &bytes) {
                    return Ok(false);
                }
                if is_end {
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Calls the program. Returns false if it wants no more.
    fn tell(&self, result: highwire_result, field: Option<&highwire_field>, part: &[u8]) -> bool {
        let field = field.map_or(ptr::null(), ptr::from_ref);
        let bytes = if part.is_empty() { ptr::null() } else { part.as_ptr() };
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The field and the bytes live
        // until it returns.
        unsafe { (self.callback)(self.request, result, field, bytes.cast(), part.len(), self.data.0) == 0 }
    }
}
