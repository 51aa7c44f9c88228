//! Requests that are answered later: a copy of the head and the body, and the right to answer.

use crate::context::Context;
use crate::receive;
use crate::request::{highwire_request, highwire_string, peer_text};
use bytes::Bytes;
use highwire::{BodyUse, FromRequest, Reply, Request, Response};
use highwire_engine::ClientCertificate;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

/// A part of the copy, as positions in its text.
type Part = (u32, u32);

/// A copy of a request's head.
#[derive(Clone, Debug, Default)]
pub(crate) struct HeadCopy {
    /// The method, the target, the path, the query, the authority, and the names and values of the fields.
    text: Vec<u8>,
    method: Part,
    target: Part,
    path: Part,
    query: Option<Part>,
    authority: Part,
    fields: Vec<(Part, Part)>,
}

/// A request that is answered later.
pub(crate) struct Deferred {
    head: HeadCopy,
    params: Vec<(String, String)>,
    pub(crate) body: Bytes,
    pub(crate) peer: String,
    pub(crate) version: http::Version,
    pub(crate) is_secure: bool,
    /// How the route takes the body.
    pub(crate) body_use: BodyUse,
    /// The value of the program, once there is one.
    pub(crate) context: OnceLock<Context>,
    /// The client's certificate.
    pub(crate) certificate: Option<ClientCertificate>,
    reply: Mutex<Option<Reply>>,
    /// True if the client has left during an answer in parts.
    is_gone: AtomicBool,
    /// Decoded values that were given to the program.
    decoded: Mutex<Vec<Box<str>>>,
}

/// The deferred requests, by handle. There are several maps, so that threads seldom wait for each other.
static REQUESTS: LazyLock<Vec<Mutex<Requests>>> = LazyLock::new(|| (0..MAPS).map(|_| Mutex::default()).collect());

type Requests = HashMap<highwire_request, Arc<Deferred>>;

const MAPS: u64 = 16;

fn map(handle: highwire_request) -> MutexGuard<'static, Requests> {
    // A thread's numbers are consecutive, so its requests spread over all maps.
    REQUESTS[(handle.id % MAPS) as usize].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies a request, takes the right to answer it, and adds it to the table.
///
/// # Errors
/// Returns the error response if the request's body cannot be taken.
pub(crate) fn keep(
    handle: highwire_request,
    request: &mut Request<'_>,
    body_use: BodyUse,
    body: Option<Bytes>,
) -> Result<Arc<Deferred>, Response> {
    let body = match (body_use, body) {
        (BodyUse::Whole, None) => request.take_body()?,
        (_, body) => body.unwrap_or_default(),
    };
    if body_use == BodyUse::Parts {
        receive::keep(handle, request.take_parts()?);
    }
    let reply = Reply::from_request(request)?;
    let deferred = Arc::new(Deferred { body, body_use, reply: Mutex::new(Some(reply)), ..Deferred::copy(request) });
    insert(handle, deferred.clone());
    Ok(deferred)
}

/// Adds a copy to the table.
pub(crate) fn insert(handle: highwire_request, deferred: Arc<Deferred>) {
    map(handle).insert(handle, deferred);
}

/// Returns a deferred request.
pub(crate) fn get(handle: highwire_request) -> Option<Arc<Deferred>> {
    map(handle).get(&handle).cloned()
}

/// Takes the right to answer a deferred request. The request stays in its table, so that its body can still be read.
pub(crate) fn take_reply(handle: highwire_request) -> Option<Reply> {
    get(handle)?.reply.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// Removes a deferred request, and returns the right to answer it. The handle is invalid from now on.
pub(crate) fn take(handle: highwire_request) -> Option<Reply> {
    let reply = take_reply(handle)?;
    remove(handle);
    Some(reply)
}

/// Removes a request whose client has disconnected during a response in parts. If the program waits for a part of the
/// request's body, only marks the request: the waiting task tells the program first, and then [`end_body`] removes the
/// request.
pub(crate) fn end_stream(handle: highwire_request) {
    if receive::is_awaited(handle)
        && let Some(deferred) = get(handle)
    {
        deferred.is_gone.store(true, Ordering::Relaxed);
    } else {
        remove(handle);
    }
}

/// Removes a request that [`end_stream`] has marked, after the program was told that its body has ended.
pub(crate) fn end_body(handle: highwire_request) {
    if get(handle).is_some_and(|deferred| deferred.is_gone()) {
        remove(handle);
    }
}

/// Removes a deferred request. Its strings are then invalid.
pub(crate) fn remove(handle: highwire_request) {
    let removed = map(handle).remove(&handle);
    receive::forget(handle);
    drop(removed);
}

impl HeadCopy {
    /// Copies the head of a request, and reuses the memory of the earlier copy.
    pub(crate) fn copy(&mut self, request: &Request<'_>) {
        let text = &mut self.text;
        text.clear();
        let mut add = |bytes: &[u8]| {
            let start = text.len() as u32;
            text.extend_from_slice(bytes);
            (start, text.len() as u32)
        };
        self.method = add(request.method().as_bytes());
        self.target = add(request.target().as_bytes());
        self.path = add(request.path().as_bytes());
        self.query = request.query().map(|query| add(query.as_bytes()));
        self.authority = add(request.authority().as_bytes());
        self.fields.clear();
        self.fields.extend(request.headers().map(|(name, value)| (add(name.as_bytes()), add(value))));
    }

    /// Returns the size of its memory in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.text.capacity() + self.fields.capacity() * size_of::<(Part, Part)>()
    }

    fn of(&self, (start, end): Part) -> &[u8] {
        &self.text[start as usize..end as usize]
    }

    fn str(&self, part: Part) -> &str {
        std::str::from_utf8(self.of(part)).unwrap_or_default()
    }

    pub(crate) fn method(&self) -> &str {
        self.str(self.method)
    }

    pub(crate) fn target(&self) -> &str {
        self.str(self.target)
    }

    pub(crate) fn path(&self) -> &str {
        self.str(self.path)
    }

    pub(crate) fn query(&self) -> Option<&str> {
        self.query.map(|query| self.str(query))
    }

    pub(crate) fn authority(&self) -> &str {
        self.str(self.authority)
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields.iter().map(|&(name, value)| (self.str(name), self.of(value)))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let found = self.headers().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value);
        let authority = || Some(self.of(self.authority)).filter(|host| !host.is_empty());
        if found.is_none() && name.eq_ignore_ascii_case("host") { authority() } else { found }
    }
}

/// The parts of the head.
impl Deref for Deferred {
    type Target = HeadCopy;
    fn deref(&self) -> &HeadCopy {
        &self.head
    }
}

impl Deferred {
    /// Returns a copy of a request without its body, and without the right to answer it.
    pub(crate) fn copy(request: &mut Request<'_>) -> Deferred {
        let mut head = HeadCopy::default();
        head.copy(request);
        Deferred {
            head,
            params: request.params().iter().map(|(name, value)| (name.to_string(), value)).collect(),
            body: Bytes::new(),
            peer: peer_text(request.peer()),
            version: request.version(),
            is_secure: request.is_secure(),
            body_use: BodyUse::None,
            context: Context::of(request).map_or_else(OnceLock::new, OnceLock::from),
            certificate: request.tls().and_then(|tls| tls.client),
            reply: Mutex::new(None),
            is_gone: AtomicBool::new(false),
            decoded: Mutex::default(),
        }
    }

    pub(crate) fn param(&self, name: &str) -> Option<highwire_string> {
        let found = self.params.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| highwire_string::of(value.as_bytes()))
    }

    /// Keeps a decoded value until the request is answered.
    pub(crate) fn keep(&self, value: String) -> highwire_string {
        let value = value.into_boxed_str();
        let string = highwire_string::of(value.as_bytes());
        self.decoded.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        string
    }

    /// Returns true if the client has left during an answer in parts.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Returns true if the program has not begun to answer.
    pub(crate) fn has_reply(&self) -> bool {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Returns true if the client still waits for the answer, or gets it in parts.
    pub(crate) fn is_wanted(&self) -> bool {
        self.reply.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_none_or(Reply::is_wanted)
            && !self.is_gone()
    }
}
