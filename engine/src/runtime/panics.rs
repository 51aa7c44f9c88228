//! Drops values of the program, and catches panics of their destructors; and what a panic has said.

use crate::runtime::rate_limited;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops a value of the program. Catches and logs a panic of its `Drop`, even while another panic unwinds.
pub fn drop_safely<T>(what: T) {
    if catch_unwind(AssertUnwindSafe(|| drop(what))).is_err() {
        rate_limited::log!(Panic, error, "a value of the program panicked when it was dropped");
    }
}

/// Shortens a text to at most `most` bytes, without cutting a character. (`str::floor_char_boundary` is newer than the oldest compiler
/// that this crate supports.)
pub fn truncate(text: &mut String, most: usize) {
    let most = most.min(text.len());
    let end = (0..=most).rev().find(|&end| text.is_char_boundary(end));
    text.truncate(end.unwrap_or(0));
}

/// The most bytes of a panic's message in the log, because a program may put a client's input into it.
const MESSAGE_BYTES: usize = 400;

/// The message of a panic, for the log.
#[derive(Debug)]
pub struct Cause(String);

impl Cause {
    /// Returns the message of a panic's payload, and drops the payload.
    #[must_use]
    pub fn of(payload: Box<dyn Any + Send>) -> Cause {
        let text = payload.downcast_ref::<&str>().copied().or(payload.downcast_ref::<String>().map(String::as_str));
        // The program may put a client's input into it, which must not make lines of its own.
        let visible = |c: char| if c.is_control() { ' ' } else { c };
        let mut message: String = text.unwrap_or("the panic has no message").chars().map(visible).collect();
        drop_safely(payload);
        truncate(&mut message, MESSAGE_BYTES);
        let wants_tokio = message.contains("a Tokio 1.x runtime") || message.contains("a Tokio context");
        if cfg!(not(feature = "tokio")) && wants_tokio {
            message.push_str("; turn on the feature `tokio` of the crate highwire");
        }
        Cause(message)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_without_tokio_names_the_feature() {
        let of_tokio = "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
        let of_sqlx = "this functionality requires a Tokio context";
        let hint = if cfg!(feature = "tokio") { "" } else { "; turn on the feature `tokio` of the crate highwire" };
        for text in [of_tokio, of_sqlx] {
            assert_eq!(Cause::of(Box::new(text)).to_string(), format!("{text}{hint}"));
        }
        assert_eq!(Cause::of(Box::new("é".repeat(300))).to_string(), "é".repeat(200));
        assert_eq!(Cause::of(Box::new("two\nlines")).to_string(), "two lines");
        assert_eq!(Cause::of(Box::new(7)).to_string(), "the panic has no message");
    }
}
