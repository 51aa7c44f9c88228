//! Which redirects are followed, and how (RFC 9110 section 15.4).

use super::error::{Error, Kind};
use super::request::Request;
use super::url::{self, Url};
use crate::StatusCode;
use http::{Method, header};
use std::rc::Rc;

/// The most redirects that are followed by default.
const MOST: usize = 10;

/// The redirects that a client follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redirects {
    most: usize,
    same_origin: bool,
}

impl Default for Redirects {
    fn default() -> Redirects {
        Redirects::limited(MOST)
    }
}

impl Redirects {
    /// Follows no redirect. The caller gets the response with its 3xx status.
    pub fn none() -> Redirects {
        Redirects::limited(0)
    }

    /// Follows up to `most` redirects; the default is 10. One more is an error.
    pub fn limited(most: usize) -> Redirects {
        Redirects { most, same_origin: false }
    }

    /// Follows only redirects within the same origin. The caller gets the response of any other.
    #[must_use]
    pub fn same_origin(mut self) -> Redirects {
        self.same_origin = true;
        self
    }

    /// Returns the URL to which a response redirects the request, if that shall be followed. `done` redirects were
    /// followed before.
    pub(super) fn next(
        self,
        request: &Request,
        status: StatusCode,
        location: Option<&str>,
        done: usize,
    ) -> Result<Option<Url>, Error> {
        let redirects = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
        let Some(location) = location.filter(|_| redirects && self.most > 0) else { return Ok(None) };
        let fail = |text: String| Error::new(Kind::Redirect(text), Some(&request.url));
        let shown: String = location.chars().take(200).collect();
        let (next, _) = url::join(&request.url, location)
            .map_err(|_| fail(format!("the server redirects to {shown:?}, which is no http: or https: URL")))?;
        if self.same_origin && !request.url.is_same_origin(&next) {
            return Ok(None);
        }
        if done >= self.most {
            return Err(fail(format!("there are more than {} redirects", self.most)));
        }
        Ok(Some(next))
    }
}

/// Changes the request to that which follows a redirect. Returns false if the request cannot be sent again because its
/// body was made in parts.
pub(super) fn follow(request: &mut Request, status: StatusCode, next: Url) -> bool {
    let changes = match status {
        StatusCode::SEE_OTHER => request.method != Method::GET && request.method != Method::HEAD,
        // As all browsers do, a POST becomes a GET.
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => request.method == Method::POST,
        _ => false,
    };
    if changes {
        request.method = Method::GET;
        request.body = super::Body::empty();
        request.has_sent_stream = false;
        request.fields.retain(|(name, _)| {
            *name != header::CONTENT_TYPE
                && *name != header::CONTENT_ENCODING
                && *name != header::CONTENT_LANGUAGE
                && *name != header::CONTENT_LOCATION
        });
    }
    if request.has_sent_stream {
        return false;
    }
    if !request.url.is_same_origin(&next) {
        // Another origin must not see the fields that were meant for this one.
        request.fields.retain(|(name, _)| {
            *name != header::AUTHORIZATION
                && *name != header::COOKIE
                && *name != header::PROXY_AUTHORIZATION
                && *name != header::HOST
                && *name != header::WWW_AUTHENTICATE
        });
    }
    request.url = Rc::new(next);
    true
}
