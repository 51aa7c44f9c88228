//! Services below a prefix.

use super::handler::{Head, Parts, RequestService, with_head};
use crate::message::dot_segments::{has_dot_segment, resolve_dot_segments};
use crate::{App, FromRequest, Request, Response};
use http::Uri;
use http::uri::PathAndQuery;

/// Makes an app of a service that answers all requests for a prefix and the paths below it, and does not see the prefix, as with axum's
/// `nest_service`. [`App::nest`] adds it to an app; the prefix is part of it already.
///
/// ```
/// use axum::{Router, routing::get};
/// use highwire::testing::Client;
/// use highwire::{App, tower};
///
/// let old = Router::new().route("/", get(async || "all")).route("/{id}", get(async || "one"));
/// let app = App::new().get("/new", || "from Highwire").nest("", tower::nested("/old", old));
/// let mut client = Client::new(app)?;
/// assert_eq!((client.get("/old").send().text(), client.get("/old/7?x=y").send().text()), ("all", "one"));
/// # Ok::<(), highwire::Error>(())
/// ```
///
/// Dot segments of the path are resolved. Otherwise the service gets the rest of the path as the client has spelled it.
pub fn nested<S: RequestService>(prefix: &str, inner: S) -> App {
    let prefix = prefix.trim_end_matches('/');
    let root = if prefix.is_empty() { "/" } else { prefix };
    App::new()
        .any(root, with_head::<Below, _>(inner.clone()))
        .any(&format!("{prefix}/{{*rest}}"), with_head::<Below, _>(inner))
}

/// The head of a request, whose path begins behind the segments of the route, with those of the apps around it.
#[derive(Debug)]
pub(super) struct Below(Parts);

impl FromRequest for Below {
    fn from_request(request: &mut Request<'_>) -> Result<Below, Response> {
        let template = request.matched_path().unwrap_or_default();
        let prefix = template.strip_suffix("/{*rest}").unwrap_or(template.trim_end_matches('/'));
        let segments = prefix.matches('/').count();
        let mut parts = Parts::from_request(request)?;
        if let Some(rest) = without_segments(&parts.0.uri, segments) {
            parts.0.uri = rest;
        }
        Ok(Below(parts))
    }
}

impl Head for Below {
    fn into_parts(self) -> http::request::Parts {
        self.0.into_parts()
    }
}

/// Returns a URI without the first segments of its path. `None` leaves it as it is, which cannot be if the router has found the path.
fn without_segments(uri: &Uri, segments: usize) -> Option<Uri> {
    let mut resolved = Vec::new();
    let path = match has_dot_segment(uri.path().as_bytes(), true) {
        true => {
            resolve_dot_segments(uri.path().as_bytes(), &mut resolved).then_some(())?;
            std::str::from_utf8(&resolved).ok()?
        }
        false => uri.path(),
    };
    let mut slashes = path.match_indices('/').map(|(at, _)| at);
    let rest = slashes.nth(segments).map_or("/", |at| &path[at..]);
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{rest}{query}")).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segments_are_taken_away() {
        for (uri, segments, expected) in [
            ("/api", 1, "/"),
            ("/api/", 1, "/"),
            ("/api/a/b?c=d", 1, "/a/b?c=d"),
            ("/v1/api/a%2Fb", 2, "/a%2Fb"),
            ("/%61pi/x", 1, "/x"),
            ("/x/../api/./y/", 1, "/y/"),
            ("/a//b", 1, "//b"),
            ("/a", 0, "/a"),
            ("https://example.org/api/x", 1, "https://example.org/x"),
        ] {
            let rest = without_segments(&uri.parse().expect("a URI"), segments).expect("a rest");
            assert_eq!(rest.to_string(), expected, "{uri}");
        }
    }
}
