//! The heads of responses. A program sends the same few again and again, so each thread keeps the last ones as the engine wants
//! them, and compares the program's bytes with theirs.

use super::{Making, bytes_of, settings};
use crate::response::{Draft, without_type};
use bytes::Bytes;
use highwire::{IntoResponse, Response, StatusCode};
use highwire_engine::response::Rendered;
use std::cell::RefCell;
use std::rc::Rc;

/// The most heads that a thread keeps.
const HEADS: usize = 16;

/// A head, and the bytes of the program from which it was made.
struct Head {
    key: Vec<u8>,
    status: StatusCode,
    reason: Option<String>,
    fields: Rc<Rendered>,
    closes: bool,
}

#[derive(Default)]
struct Heads {
    key: Vec<u8>,
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
    let body = Bytes::copy_from_slice(making.body.as_ref().map_or(&[][..], |body| bytes(body)));
    let mut response = without_type(body);
    KNOWN.with_borrow_mut(|heads| {
        heads.key.clear();
        heads.key.extend_from_slice(line);
        for (name, value) in &making.fields {
            // No valid line or field has a NUL.
            for part in [&[0][..], bytes(name), &[0], bytes(value)] {
                heads.key.extend_from_slice(part);
            }
        }
        let at = match heads.known.iter().position(|head| head.key == heads.key) {
            Some(at) => at,
            None => {
                let fields = making.fields.iter().map(|(name, value)| (bytes(name), bytes(value)));
                heads.keep(line, fields)
            }
        };
        let head = &heads.known[at];
        response.set_status(head.status);
        response.share_headers(head.fields.clone());
        let made = std::mem::replace(&mut response, Response::new(StatusCode::OK));
        let made = match &head.reason {
            Some(reason) => made.with_reason(reason).unwrap_or_else(|_| head.status.into_response()),
            None => made,
        };
        response = if head.closes { made.and_close() } else { made };
    });
    response
}

impl Heads {
    /// Keeps a head whose key is `self.key`. Returns its place.
    fn keep<'f>(&mut self, line: &[u8], fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> usize {
        let (status, reason) = settings::status(line);
        let mut draft = Draft::of(status);
        for (name, value) in fields {
            // A field that would split the response is left out.
            let _ = draft.add_header(&String::from_utf8_lossy(name), value);
        }
        let (fields, closes) = draft.into_fields();
        let head = Head { key: self.key.clone(), status, reason, fields: Rendered::new(fields), closes };
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
