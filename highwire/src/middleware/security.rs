//! Header fields that turn on security features of browsers.

use super::Middleware;
use crate::{HeaderName, HeaderValue, Request, Response, header};

/// Adds these security fields to responses that do not have them yet:
///
/// | field | value |
/// |---|---|
/// | `X-Content-Type-Options` | `nosniff` |
/// | `X-Frame-Options` | `DENY` |
/// | `Referrer-Policy` | `strict-origin-when-cross-origin` |
/// | `Cross-Origin-Opener-Policy` | `same-origin` |
/// | `Content-Security-Policy` | the value of [`policy`](Self::policy); without one, the field is absent |
///
/// [`Https::hsts`](crate::Https::hsts) sets `Strict-Transport-Security`.
///
/// ```
/// use highwire::middleware::SecurityHeaders;
/// use highwire::testing::Client;
/// use highwire::{App, HeaderValue, header};
///
/// let fields = SecurityHeaders::new()
///     .policy(HeaderValue::from_static("default-src 'self'"))
///     .set(header::X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
/// let answer = Client::new(App::new().get("/", || "hello").with(fields))?.get("/").send();
/// assert_eq!((answer.header("x-content-type-options"), answer.header("x-frame-options")), ("nosniff", "SAMEORIGIN"));
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
#[doc(alias = "SecurityFields")]
pub struct SecurityHeaders {
    fields: Vec<(HeaderName, HeaderValue)>,
}

impl Default for SecurityHeaders {
    fn default() -> SecurityHeaders {
        SecurityHeaders::new()
    }
}

impl SecurityHeaders {
    /// Creates the middleware with the first four fields of the table.
    pub fn new() -> SecurityHeaders {
        let fields = [
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "strict-origin-when-cross-origin"),
            (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        ];
        SecurityHeaders { fields: fields.map(|(name, value)| (name, HeaderValue::from_static(value))).to_vec() }
    }

    /// Sets the value of `Content-Security-Policy`, which limits the sources from which a page may load scripts, styles
    /// and other resources.
    pub fn policy(self, policy: HeaderValue) -> SecurityHeaders {
        self.set(header::CONTENT_SECURITY_POLICY, policy)
    }

    /// Adds a field to the table, or replaces the value that the table has for it.
    pub fn set(mut self, name: HeaderName, value: HeaderValue) -> SecurityHeaders {
        self = self.without(&name);
        self.fields.push((name, value));
        self
    }

    /// Removes a field from the table.
    pub fn without(mut self, name: &HeaderName) -> SecurityHeaders {
        self.fields.retain(|(known, _)| known != name);
        self
    }
}

impl Middleware for SecurityHeaders {
    type State = ();

    fn before(&self, _: &mut Request<'_>) -> Result<(), Response> {
        Ok(())
    }

    fn after(&self, (): (), response: &mut Response) {
        for (name, value) in &self.fields {
            if response.header(name).is_none() {
                response.add_header(name.clone(), value.clone());
            }
        }
    }
}
