//! The engine's log: its events become records of the loggers `highwire.error` and `highwire.access`.
//!
//! An event may come from a thread that must not wait for the interpreter. It waits in a queue until the next turn ends.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The most events that wait. Others are lost, and counted.
const MOST_WAITING: usize = 4096;

/// The target of the events of the access log.
const ACCESS: &str = "highwire::access";

/// A value of an event.
enum Value {
    Number(u64),
    Text(String),
}

/// An event that waits.
struct Line {
    level: u8,
    is_access: bool,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

#[derive(Default)]
struct Lines {
    waiting: Vec<Line>,
    lost: u64,
}

static LINES: Mutex<Lines> = Mutex::new(Lines { waiting: Vec::new(), lost: 0 });

/// True if there are lines, so that most turns need no lock.
static HAS_LINES: AtomicBool = AtomicBool::new(false);

/// Returns the level of the module `logging`.
fn level(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        _ => 10,
    }
}

/// Puts events into the queue.
struct Queue;

impl Subscriber for Queue {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO && metadata.target().starts_with("highwire")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let is_access = metadata.target() == ACCESS;
        let mut line = Line { level: level(*metadata.level()), is_access, message: String::new(), fields: Vec::new() };
        event.record(&mut line);
        let mut lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.waiting.len() < MOST_WAITING {
            lines.waiting.push(line);
        } else {
            lines.lost += 1;
        }
        HAS_LINES.store(true, Ordering::Release);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl Visit for Line {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), Value::Number(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            self.fields.push((field.name(), Value::Text(value.to_owned())));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        self.record_str(field, &text);
    }
}

/// Begins to collect the events of the engine, unless the process does so already.
pub(crate) fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // If another library of the process has set a subscriber, the events are its own.
        let _ = tracing::subscriber::set_global_default(Queue);
    });
}

/// Passes the events that wait to `log`: the level and the text of each, or the level and the values of a line of the access
/// log.
pub(crate) fn pass_on(log: &Bound<'_, PyAny>) {
    if !HAS_LINES.swap(false, Ordering::AcqRel) {
        return;
    }
    let lines = std::mem::take(&mut *LINES.lock().unwrap_or_else(PoisonError::into_inner));
    let py = log.py();
    for line in lines.waiting {
        if let Err(error) = line.pass_on(log) {
            error.write_unraisable(py, Some(log));
        }
    }
    if lines.lost > 0
        && let Err(error) = log.call1((level(Level::WARN), format!("{} lines of the log are lost", lines.lost)))
    {
        error.write_unraisable(py, Some(log));
    }
}

impl Line {
    fn pass_on(mut self, log: &Bound<'_, PyAny>) -> PyResult<()> {
        if self.is_access {
            let values = PyDict::new(log.py());
            for (name, value) in self.fields {
                match value {
                    Value::Number(number) => values.set_item(name, number)?,
                    Value::Text(text) => values.set_item(name, text)?,
                }
            }
            log.call1((self.level, values))?;
            return Ok(());
        }
        for (name, value) in self.fields {
            let _ = match value {
                Value::Number(number) => write!(self.message, " {name}={number}"),
                Value::Text(text) => write!(self.message, " {name}={text}"),
            };
        }
        log.call1((self.level, self.message))?;
        Ok(())
    }
}
