//! Result codes, the text of the last error of a thread, and the guard around every function.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::future::poll_fn;
use std::io::ErrorKind;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

/// The result of a function. Every value but `HIGHWIRE_OK` is an error; `HIGHWIRE_AGAIN` and `HIGHWIRE_NOT_FOUND` may
/// be expected ones. `highwire_last_error` has the details.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum highwire_result {
    /// The function succeeded.
    HIGHWIRE_OK = 0,
    /// A pointer is NULL, but must not be.
    HIGHWIRE_NULL = 1,
    /// The handle is invalid, or its object is gone: a server that was freed, a request that was answered. Until its
    /// handler returns, an answered request can still be read, and a second answer returns `HIGHWIRE_WRONG_STATE`.
    HIGHWIRE_INVALID_HANDLE = 2,
    /// An argument is invalid: a header with a line end, a path without a slash, a status outside 100 to 999.
    HIGHWIRE_INVALID_ARGUMENT = 3,
    /// The function must not be called on this thread.
    HIGHWIRE_WRONG_THREAD = 4,
    /// The function must not be called now: for example to set an option of a client after its first call, or to answer
    /// twice in a handler.
    HIGHWIRE_WRONG_STATE = 5,
    /// The queue is full. Try again after the callback for room.
    HIGHWIRE_AGAIN = 6,
    /// The client has disconnected, or the request was aborted, so no response is sent.
    HIGHWIRE_GONE = 7,
    /// There is no such header, parameter, …
    HIGHWIRE_NOT_FOUND = 8,
    /// The operating system refused an operation.
    HIGHWIRE_SYSTEM = 9,
    /// The settings are invalid or contradict each other.
    HIGHWIRE_SETTING = 10,
    /// This build of the library does not have the feature.
    HIGHWIRE_UNSUPPORTED = 11,
    /// A fault of the library. Please report it.
    HIGHWIRE_INTERNAL = 12,
    /// A time limit of a call to another server has passed.
    HIGHWIRE_TIMED_OUT = 13,
    /// A call to another server has failed: the server could not be reached, or its response is invalid.
    HIGHWIRE_FAILED = 14,
    /// The library has refused the request, and has answered it.
    HIGHWIRE_REFUSED = 15,
}

pub(crate) use highwire_result::*;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// An error: the code and the text.
pub(crate) type Failed = (highwire_result, String);

/// Returns an error.
pub(crate) fn failed<T>(code: highwire_result, text: impl Into<String>) -> Result<T, Failed> {
    Err((code, text.into()))
}

impl From<highwire::Error> for highwire_result {
    fn from(error: highwire::Error) -> highwire_result {
        match error {
            // For example an address without a port.
            highwire::Error::System(error) if error.kind() == ErrorKind::InvalidInput => HIGHWIRE_INVALID_ARGUMENT,
            highwire::Error::System(_) => HIGHWIRE_SYSTEM,
            _ => HIGHWIRE_SETTING,
        }
    }
}

/// Returns an error of the engine.
pub(crate) fn engine<T>(result: highwire::Result<T>) -> Result<T, Failed> {
    result.map_err(|error| {
        let text = error.to_string();
        (error.into(), text)
    })
}

/// Keeps the text for [`highwire_last_error`].
fn keep(text: &str) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // This fails only when the thread ends.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// Runs the body of a function of the library. Keeps the text of an error. A panic becomes `HIGHWIRE_INTERNAL`.
#[inline]
pub(crate) fn guarded(body: impl FnOnce() -> Result<(), Failed>) -> highwire_result {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => HIGHWIRE_OK,
        Ok(Err((code, text))) => {
            keep(&text);
            code
        }
        Err(_) => {
            keep(PANICKED);
            HIGHWIRE_INTERNAL
        }
    }
}

const PANICKED: &str = "the library has panicked";

/// Runs a task of the library, as [`guarded`] runs a function, so that the program gets a result.
pub(crate) async fn guarded_task<T>(task: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    let mut task = Box::pin(task);
    let result = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Some),
        Err(_) => Poll::Ready(None),
    });
    match result.await {
        Some(result) => result,
        None => {
            // Dropping a task that has panicked may panic again, so it is leaked.
            mem::forget(task);
            failed(HIGHWIRE_INTERNAL, PANICKED)
        }
    }
}

/// Returns the error of a pointer that is NULL.
pub(crate) fn null<T>(name: &str) -> Result<T, Failed> {
    failed(HIGHWIRE_NULL, format!("{name} is NULL"))
}

/// Returns the text of this thread's last error, with a NUL at its end. The text is valid until the next function of
/// the library fails on this thread. It may quote what a client has sent: escape it before you put it into JSON or
/// HTML.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Returns the name of a result, such as `"HIGHWIRE_GONE"`. The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_result_name(result: i32) -> *const c_char {
    const NAMES: [&CStr; 16] = [
        c"HIGHWIRE_OK",
        c"HIGHWIRE_NULL",
        c"HIGHWIRE_INVALID_HANDLE",
        c"HIGHWIRE_INVALID_ARGUMENT",
        c"HIGHWIRE_WRONG_THREAD",
        c"HIGHWIRE_WRONG_STATE",
        c"HIGHWIRE_AGAIN",
        c"HIGHWIRE_GONE",
        c"HIGHWIRE_NOT_FOUND",
        c"HIGHWIRE_SYSTEM",
        c"HIGHWIRE_SETTING",
        c"HIGHWIRE_UNSUPPORTED",
        c"HIGHWIRE_INTERNAL",
        c"HIGHWIRE_TIMED_OUT",
        c"HIGHWIRE_FAILED",
        c"HIGHWIRE_REFUSED",
    ];
    usize::try_from(result).ok().and_then(|at| NAMES.get(at)).unwrap_or(&c"unknown").as_ptr()
}

/// Returns the version of the library, such as `"0.1.0"`. The text is constant.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version has a NUL"),
    };
    VERSION.as_ptr()
}

/// Returns a text of the caller, or `None` for NULL.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_none<'t>(pointer: *const c_char, name: &str) -> Result<Option<&'t str>, Failed> {
    // SAFETY: as the caller promises.
    if pointer.is_null() { Ok(None) } else { unsafe { text(pointer, name) }.map(Some) }
}

/// Returns a text of the caller.
///
/// # Safety
/// The pointer is NULL, or points to bytes that end with a NUL and stay as they are while the result is used.
pub(crate) unsafe fn text<'t>(pointer: *const c_char, name: &str) -> Result<&'t str, Failed> {
    if pointer.is_null() {
        return null(name);
    }
    // SAFETY: the caller promises a text that ends with a NUL.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map_err(|_| (HIGHWIRE_INVALID_ARGUMENT, format!("{name} is not UTF-8")))
}

/// Returns bytes of the caller. NULL is permitted if the length is 0.
///
/// # Safety
/// The pointer is NULL, or points to `length` bytes that stay as they are while the result is used.
pub(crate) unsafe fn bytes<'b>(pointer: *const u8, length: usize, name: &str) -> Result<&'b [u8], Failed> {
    match (pointer.is_null(), length) {
        (_, 0) => Ok(&[]),
        (true, _) => null(name),
        (_, length) if isize::try_from(length).is_err() => {
            failed(HIGHWIRE_INVALID_ARGUMENT, format!("{name} has {length} bytes, more than any memory has"))
        }
        // SAFETY: the caller promises this many bytes, and the pointer is not NULL.
        (false, length) => Ok(unsafe { std::slice::from_raw_parts(pointer, length) }),
    }
}

/// Stores a result of a function through the caller's pointer.
///
/// # Safety
/// The pointer is NULL, or points to memory for a `T` that the caller may write.
pub(crate) unsafe fn give<T>(place: *mut T, value: T, name: &str) -> Result<(), Failed> {
    if place.is_null() {
        return null(name);
    }
    // SAFETY: the caller promises memory for a `T`, and the pointer is not NULL.
    unsafe { place.write(value) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Waker};

    #[test]
    fn a_task_that_panics_has_a_result() {
        let poll = |task: &mut dyn FnMut() -> Poll<Result<u8, Failed>>| {
            let guarded = pin!(guarded_task(poll_fn(|_| task())));
            guarded.poll(&mut Context::from_waker(Waker::noop()))
        };
        assert_eq!(poll(&mut || Poll::Pending), Poll::Pending);
        assert_eq!(poll(&mut || Poll::Ready(Ok(7))), Poll::Ready(Ok(7)));
        assert_eq!(poll(&mut || panic!("a test")), Poll::Ready(failed(HIGHWIRE_INTERNAL, PANICKED)));
    }
}
