//! The log: lines for a callback of the program.

use crate::data::Data;
use crate::result::{HIGHWIRE_WRONG_STATE, failed, guarded, highwire_result, null};
use std::ffi::{CString, c_char, c_void};
use std::fmt::{Arguments, Write as _};
use std::io::Write as _;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Gets a line of the log, without a line end. `level` is 1 for errors, 2 for warnings, 3 for information. The text is
/// valid until the callback returns. The callback may run on several threads at the same time, and must not block.
pub type highwire_log_callback = Option<unsafe extern "C" fn(level: i32, line: *const c_char, data: *mut c_void)>;

/// Prints a problem to standard error, for programs of the older interfaces, which have no log. If that fails, the line
/// is lost: `eprintln` would panic.
pub(crate) fn complain(library: &str, problem: Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{library}: {problem}");
}

/// Passes log events to the program. Ignores spans.
struct Lines {
    callback: unsafe extern "C" fn(i32, *const c_char, *mut c_void),
    data: Data,
    most: Level,
}

fn number(level: &Level) -> i32 {
    match *level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

/// Writes the message of an event, and then its other fields.
#[derive(Default)]
struct Line {
    message: String,
    rest: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.rest, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.most
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        let text = format!("{}{}", line.message, line.rest).replace(['\0', '\n', '\r'], " ");
        let text = CString::new(text).unwrap_or_default();
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind. The text lives until
        // it returns.
        unsafe { (self.callback)(number(event.metadata().level()), text.as_ptr(), self.data.0) };
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Sets the callback that gets the lines of the log up to this level, 1 to 3. It can be set once per process, before
/// servers start; without it, the library logs nothing. The callback must not call functions of servers: a server that
/// is starting would wait for itself.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_set_log(
    level: i32,
    callback: highwire_log_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(callback) = callback else { return null("callback") };
        let most = match level {
            ..=1 => Level::ERROR,
            2 => Level::WARN,
            3 => Level::INFO,
            4 => Level::DEBUG,
            _ => Level::TRACE,
        };
        let lines = Lines { callback, data: Data(data), most };
        match tracing::subscriber::set_global_default(lines) {
            Ok(()) => Ok(()),
            Err(_) => failed(HIGHWIRE_WRONG_STATE, "the log has a callback already"),
        }
    })
}
