//! The heads of responses. A program sends the same few again and again, so each thread caches the last ones in the
//! engine's form, with the program's bytes as the key.

use super::{Making, bytes_of, settings};
use crate::response::{Draft, without_type};
use bytes::Bytes;
use highwire::{IntoResponse, Response, StatusCode};
use highwire_engine::response::Rendered;
use std::cell::RefCell;
use std::rc::Rc;

/// The most heads that a thread keeps.
const HEADS: usize = 16;

/// The most bytes of a body that a thread keeps with its head.
const KEPT_BODY: usize = 1024;

/// A head, and the bytes of the program from which it was made.
struct Head {
    line: Vec<u8>,
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    status: StatusCode,
    reason: Option<String>,
    fields: Rc<Rendered>,
    closes: bool,
    /// The body of the last response with this head, if it is short.
    body: Bytes,
}

#[derive(Default)]
struct Heads {
    known: Vec<Head>,
    /// The place of the head that is replaced next.
    next: usize,
}

thread_local! {
    static KNOWN: RefCell<Heads> = RefCell::default();
}

/// Returns the response that a program has made.
///
/// # Safety
/// The program's bytes are still there.
pub(super) unsafe fn response(making: &Making) -> Response {
    // SAFETY: as the caller promises.
    let bytes = |string| unsafe { bytes_of(string) };
    let line = making.status.as_ref().map_or(&b"200 OK"[..], |status| bytes(status));
    let body = making.body.as_ref().map_or(&[][..], |body| bytes(body));
    let pairs = making.fields.iter().map(|(name, value)| (bytes(name), bytes(value)));
    KNOWN.with_borrow_mut(|heads| {
        let known = heads.known.iter().position(|head| head.is_of(line, pairs.clone()));
        let at = known.unwrap_or_else(|| heads.keep(line, pairs));
        heads.known[at].response(body)
    })
}

impl Head {
    /// Returns true if the head was made from these bytes.
    fn is_of<'f>(&self, line: &[u8], pairs: impl ExactSizeIterator<Item = (&'f [u8], &'f [u8])>) -> bool {
        self.pairs.len() == pairs.len()
            && self.line == line
            && self.pairs.iter().zip(pairs).all(|(own, (name, value))| own.0 == name && own.1 == value)
    }

    /// Returns a response with this head.
    fn response(&mut self, body: &[u8]) -> Response {
        // A short body that is the same as the last one needs no memory.
        if self.body != body {
            self.body = Bytes::copy_from_slice(body);
        }
        let mut response = without_type(self.body.clone());
        if body.len() > KEPT_BODY {
            self.body = Bytes::new();
        }
        response.set_status(self.status);
        response.share_headers(self.fields.clone());
        if self.reason.is_none() && !self.closes {
            return response;
        }
        let response = match &self.reason {
            Some(reason) => response.with_reason(reason).unwrap_or_else(|_| self.status.into_response()),
            None => response,
        };
        if self.closes { response.and_close() } else { response }
    }
}

impl Heads {
    /// Keeps the head that is made from these bytes. Returns its place.
    fn keep<'f>(&mut self, line: &[u8], pairs: impl Iterator<Item = (&'f [u8], &'f [u8])> + Clone) -> usize {
        let (status, reason) = settings::status(line);
        let mut draft = Draft::of(status);
        for (name, value) in pairs.clone() {
            // A field that would split the response is left out.
            let _ = draft.add_header(&String::from_utf8_lossy(name), value);
        }
        let (fields, closes) = draft.into_fields();
        let head = Head {
            line: line.to_vec(),
            pairs: pairs.map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
            status,
            reason,
            fields: Rendered::new(fields),
            closes,
            body: Bytes::new(),
        };
        if self.known.len() < HEADS {
            self.known.push(head);
            return self.known.len() - 1;
        }
        let at = self.next;
        self.next = (self.next + 1) % HEADS;
        self.known[at] = head;
        at
    }
}
