//! Distributed traces: the field `traceparent` (W3C Trace Context, level 1).

use super::Middleware;
use super::request_id::random;
use crate::message::request::FromRequest;
use crate::{Request, Response};
use std::fmt;

/// Continues the trace in the request's `traceparent`, or begins a trace if that field is missing or invalid. Handlers
/// take the trace as [`TraceParent`].
///
/// ```
/// use highwire::App;
/// use highwire::middleware::{TraceParent, TraceContext};
/// use highwire::testing::Client;
///
/// let app = App::new().get("/", |trace: TraceParent| trace.to_string()).with(TraceContext);
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// let answer = Client::new(app)?.get("/").header("traceparent", parent).send();
/// assert!(answer.text().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
#[doc(alias = "Tracing")]
pub struct TraceContext;

/// A request's place in a trace: an extractor. If the middleware [`TraceContext`] or [`RequestSpan`](super::RequestSpan) has not read it
/// before, it is read now.
/// `Display` writes the value of `traceparent` for requests that the handler sends to other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The identifier of the trace, which all requests of the trace have. It is never 0.
    pub trace: u128,
    /// The identifier of the caller's span; 0 if the trace begins here.
    pub parent: u64,
    /// The identifier of this request's span. It is never 0.
    pub span: u64,
    /// True if the caller may have recorded the trace.
    pub sampled: bool,
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

impl TraceParent {
    /// Parses a `traceparent` into the trace, the caller's span, and true if the caller may have recorded the trace.
    fn read(value: &[u8]) -> Option<(u128, u64, bool)> {
        let text = std::str::from_utf8(value).ok()?;
        let mut parts = text.split('-');
        let mut next = |length: usize| {
            let part = parts.next().filter(|part| part.len() == length)?;
            part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')).then_some(part)
        };
        let version = u8::from_str_radix(next(2)?, 16).ok()?;
        let trace = u128::from_str_radix(next(32)?, 16).ok().filter(|&trace| trace != 0)?;
        let parent = u64::from_str_radix(next(16)?, 16).ok().filter(|&parent| parent != 0)?;
        let flags = u8::from_str_radix(next(2)?, 16).ok()?;
        // A later version may have more fields (section "Versioning of traceparent"); version 0 may not.
        (version != 0xff && (version != 0 || parts.next().is_none())).then_some((trace, parent, flags & 1 == 1))
    }
}

impl TraceParent {
    /// Returns the request's place in its trace: what was found before, or what `traceparent` says, or the begin of a trace.
    pub(super) fn of(request: &mut Request<'_>) -> TraceParent {
        if let Some(known) = request.extension::<TraceParent>() {
            return *known;
        }
        let fresh = random();
        let span = (random() as u64).max(1);
        let given = request.header("traceparent").and_then(TraceParent::read);
        let (trace, parent, sampled) = given.unwrap_or((fresh.max(1), 0, false));
        let place = TraceParent { trace, parent, span, sampled };
        request.extensions().insert(place);
        place
    }
}

impl FromRequest for TraceParent {
    fn from_request(request: &mut Request<'_>) -> Result<TraceParent, Response> {
        Ok(TraceParent::of(request))
    }
}

impl Middleware for TraceContext {
    type State = ();

    fn before(&self, request: &mut Request<'_>) -> Result<(), Response> {
        TraceParent::of(request);
        Ok(())
    }

    fn after(&self, (): (), _: &mut Response) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_standard_writes_is_read() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let read = |text: &str| TraceParent::read(text.as_bytes());
        let whole = Some((0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(read(good), whole);
        assert_eq!(read(&format!("cc{}-what-comes", &good[2..])), whole);
        for wrong in [
            "",
            &format!("{good}-"),
            &format!("ff{}", &good[2..]),
            &good.to_uppercase(),
            &good.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &good.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &good.replace("-01", "-1"),
            &good.replace('-', "_"),
            &good[..54],
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let context = TraceParent { trace: 1, parent: 2, span: 3, sampled: true };
        assert_eq!(read(&context.to_string()), Some((1, 3, true)));
    }
}
