//! The plans of exchanges, and the pipe between both sides, for the tests against another implementation.
//!
//! A [`Plan`] lists the messages of a stream. Both sides have all plans, and describe the events that they see in the
//! same words.

pub(crate) mod ours;
pub(crate) mod theirs;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Pseudo-random numbers from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    pub(crate) fn of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// The side that resets a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reset {
    Nobody,
    /// The client resets the stream when it has received the response's head.
    Client,
    /// The server resets the stream when it has received the whole request and sent half of the response's body.
    Server,
}

/// The error codes of the resets by the client and by the server.
pub(crate) const CLIENTS_CODE: u32 = 8;
pub(crate) const SERVERS_CODE: u32 = 2;

/// The messages of one stream.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) at: usize,
    pub(crate) method: &'static str,
    pub(crate) protocol: Option<&'static str>,
    pub(crate) fields: Vec<(String, String)>,
    /// The number of bytes of the request's body.
    pub(crate) body: usize,
    pub(crate) trailers: bool,
    pub(crate) interims: usize,
    pub(crate) status: u16,
    pub(crate) answer_fields: Vec<(String, String)>,
    /// The number of bytes of the response's body.
    pub(crate) answer: usize,
    pub(crate) answer_trailers: bool,
    /// True if the length of each body that is not empty is announced.
    pub(crate) announced: bool,
    pub(crate) reset: Reset,
}

impl Plan {
    pub(crate) fn random(random: &mut Random, at: usize, most_body: usize) -> Plan {
        let methods = ["GET", "POST", "POST", "PUT", "HEAD", "CONNECT", "CONNECT", "GET"];
        let method = random.of(&methods);
        let has_body = matches!(method, "POST" | "PUT");
        let tunnel = method == "CONNECT";
        let status = if tunnel { random.of(&[200, 200, 204]) } else { random.of(&[200, 200, 200, 204, 304, 404]) };
        let bodiless = !tunnel && (method == "HEAD" || matches!(status, 204 | 304));
        let mut length = |allowed: bool| if allowed { random.of(&[0, 1, 100, most_body]) } else { 0 };
        let (body, answer) = (length(has_body || tunnel), length(!bodiless));
        Plan {
            at,
            method,
            protocol: (tunnel && random.below(2) == 0).then_some("oracle"),
            fields: fields(random),
            body,
            trailers: has_body && random.below(3) == 0,
            interims: random.of(&[0, 0, 0, 1, 2]),
            status,
            answer_fields: fields(random),
            answer,
            answer_trailers: !bodiless && !tunnel && random.below(3) == 0,
            announced: !tunnel && random.below(2) == 0,
            reset: match () {
                () if bodiless => Reset::Nobody,
                // `Reset::Server` waits for the whole request, but the two directions of a tunnel are independent.
                () if tunnel => random.of(&[Reset::Nobody, Reset::Nobody, Reset::Client]),
                () => random.of(&[Reset::Nobody, Reset::Nobody, Reset::Nobody, Reset::Client, Reset::Server]),
            },
        }
    }

    pub(crate) fn is_tunnel(&self) -> bool {
        self.method == "CONNECT"
    }

    /// Returns true if the response is complete with its head.
    pub(crate) fn answers_with_a_head(&self) -> bool {
        self.answer == 0 && !self.answer_trailers && self.reset == Reset::Nobody && !self.is_tunnel()
    }

    /// Returns true if the request is complete with its head.
    pub(crate) fn asks_with_a_head(&self) -> bool {
        self.body == 0 && !self.trailers && self.reset != Reset::Client && !self.is_tunnel()
    }

    pub(crate) fn authority(&self) -> String {
        format!("h:{}", 1_000 + self.at)
    }

    pub(crate) fn path(&self) -> String {
        if self.is_tunnel() && self.protocol.is_none() { String::new() } else { format!("/{}", self.at) }
    }

    /// Returns the events that the server must see.
    pub(crate) fn asked(&self) -> Vec<String> {
        let (path, protocol) = (self.path(), self.protocol.unwrap_or_default());
        let head = told_head(&format!("{} {path} {} {protocol}", self.method, self.authority()), &self.fields);
        match self.reset {
            Reset::Client => vec![head, told_reset(CLIENTS_CODE)],
            _ => vec![head, told_end(self.body, self.trailers)],
        }
    }

    /// Returns the events that the client must see.
    pub(crate) fn answered(&self) -> Vec<String> {
        let mut seen = vec!["interim".to_owned(); self.interims];
        seen.push(told_head(&self.status.to_string(), &self.answer_fields));
        match self.reset {
            Reset::Nobody => seen.push(told_end(self.answer, self.answer_trailers)),
            Reset::Server => seen.push(told_reset(SERVERS_CODE)),
            Reset::Client => {}
        }
        seen
    }
}

/// Returns the plan of the request with this authority.
pub(crate) fn plan_of<'p>(plans: &'p [Plan], authority: &str) -> &'p Plan {
    plans.iter().find(|plan| plan.authority() == authority).expect("a plan for this authority")
}

/// Returns random fields, mostly few and short ones, but sometimes more than fit a frame.
fn fields(random: &mut Random) -> Vec<(String, String)> {
    let count = random.below(5);
    let fields = (0..count).map(|at| {
        let bytes = random.of(&[0, 1, 20, 20, 300, 7_000]);
        let first = random.below(26) as u8;
        let value = (0..bytes).map(|place| char::from(b'a' + (first + (place % 7) as u8) % 26)).collect();
        (format!("x-{}", at / 2), value)
    });
    fields.collect()
}

pub(crate) fn told_head(start: &str, fields: &[(String, String)]) -> String {
    let fields = fields.iter().filter(|(name, _)| name.starts_with("x-"));
    fields.fold(start.to_owned(), |told, (name, value)| told + " " + name + "=" + value)
}

pub(crate) fn told_end(bytes: usize, trailers: bool) -> String {
    format!("end {bytes}{}", if trailers { " with trailers" } else { "" })
}

pub(crate) fn told_reset(code: u32) -> String {
    format!("reset {code}")
}

/// Returns bytes of a body, from a position on.
pub(crate) fn body(plan: &Plan, from: usize, bytes: usize) -> Vec<u8> {
    (from..from + bytes).map(|place| (place * 31 + plan.at) as u8).collect()
}

/// The state of the pipe between both sides.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) to_theirs: VecDeque<u8>,
    pub(crate) to_ours: Vec<u8>,
    pub(crate) random: Random,
    /// The largest number of bytes that move at once.
    pub(crate) piece: usize,
    pub(crate) closed: bool,
}

/// The pipe between both sides. The other implementation uses it by [`AsyncRead`] and [`AsyncWrite`], our side by
/// [`take`](Pipe::take) and `to_theirs`.
#[derive(Clone, Debug)]
pub(crate) struct Pipe(pub(crate) Rc<RefCell<Link>>);

impl Pipe {
    pub(crate) fn new(seed: u64, piece: usize) -> Pipe {
        let (to_theirs, to_ours) = (VecDeque::new(), Vec::new());
        Pipe(Rc::new(RefCell::new(Link { to_theirs, to_ours, random: Random(seed), piece, closed: false })))
    }

    /// Returns true if no bytes are on their way.
    pub(crate) fn is_empty(&self) -> bool {
        let link = self.0.borrow();
        link.to_theirs.is_empty() && link.to_ours.is_empty()
    }

    /// Takes a piece of the bytes that have arrived at our end.
    pub(crate) fn take(&self) -> Vec<u8> {
        let link = &mut *self.0.borrow_mut();
        let bytes = (link.random.below(link.piece) + 1).min(link.to_ours.len());
        link.to_ours.drain(..bytes).collect()
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let link = &mut *self.0.borrow_mut();
        if link.to_theirs.is_empty() {
            return if link.closed { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let bytes = (link.random.below(link.piece) + 1).min(link.to_theirs.len()).min(buffer.remaining());
        buffer.put_slice(&link.to_theirs.drain(..bytes).collect::<Vec<u8>>());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let link = &mut *self.0.borrow_mut();
        let taken = (link.random.below(link.piece) + 1).min(bytes.len());
        link.to_ours.extend_from_slice(&bytes[..taken]);
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
