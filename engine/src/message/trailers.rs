//! The trailer fields that handlers may see.
//!
//! RFC 9110 section 6.5.1: a recipient must not merge a trailer field into the head, and should drop it, unless it
//! knows that the field's definition permits trailers. A trailer arrives after the server has routed, authenticated and
//! framed the request. A handler may copy trailers to an upstream request, or look up a name in both sections, and must
//! not find a field there that changes those decisions. A field passes by one of three rules; every other field is
//! dropped:
//!
//! 1. A standard field passes if its definition permits trailers ([`STANDARD`]).
//! 2. A field of gRPC's status passes ([`GRPC`]). The other fields of gRPC control a call and belong in the head.
//! 3. An application's own field passes if its name begins with `x-`, such as `x-checksum` or `x-amz-checksum-crc32`.
//!    It is dropped if proxies, gateways or frameworks are known to act on it ([`REFUSED`], [`REFUSED_PREFIXES`]).

use http::HeaderName;

/// Standard fields whose definitions permit trailers.
const STANDARD: &[&str] = &[
    // RFC 9110 sections 8.8.3 and 14.3.
    "etag",
    "accept-ranges",
    // RFC 9530 sections 2 and 3, and RFC 3230, which RFC 9530 replaces.
    "content-digest",
    "repr-digest",
    "digest",
    // RFC 9421 section 4: a signature may cover the whole body, and is then known only at the body's end.
    "signature",
    "signature-input",
    // RFC 9209 section 2.
    "proxy-status",
    // W3C Server Timing, section 2.
    "server-timing",
];

/// The fields that end a gRPC call: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
const GRPC: &[&str] = &["grpc-status", "grpc-message", "grpc-status-details-bin"];

/// Fields whose names begin with `x-` and by which servers choose a route, a method or a user.
const REFUSED: &[&str] = &[
    "x-api-key",
    "x-csrf-token",
    "x-csrftoken",
    "x-host",
    "x-method-override",
    "x-real-ip",
    "x-requested-with",
    "x-rewrite-url",
    "x-scheme",
    "x-sendfile",
    "x-url-scheme",
    "x-xsrf-token",
];

/// Prefixes of the names of further fields by which servers choose a route, a method or a user.
const REFUSED_PREFIXES: &[&str] = &[
    "x-accel-",
    "x-auth-",
    "x-authenticated-",
    "x-client-",
    "x-cluster-",
    "x-envoy-",
    "x-forwarded",
    "x-forward-",
    "x-goog-iap-",
    "x-http-",
    "x-original-",
    "x-proxy-",
    "x-remote-",
    "x-ssl-",
    "x-user-",
];

/// Returns true if a handler may see a trailer field with this name.
pub(crate) fn is_allowed_trailer(name: &HeaderName) -> bool {
    let name = name.as_str();
    if STANDARD.contains(&name) || GRPC.contains(&name) {
        return true;
    }
    name.starts_with("x-")
        && !REFUSED.contains(&name)
        && !REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: bool, names: &[&str]) {
        for name in names {
            let name = HeaderName::from_bytes(name.as_bytes()).expect(name);
            assert_eq!(is_allowed_trailer(&name), expected, "{name}");
        }
    }

    #[test]
    fn fields_whose_definitions_permit_trailers_pass() {
        check(true, &["ETag", "Accept-Ranges", "Content-Digest", "Repr-Digest", "Digest", "Server-Timing"]);
        check(true, &["Signature", "Signature-Input", "Proxy-Status"]);
        check(true, &["grpc-status", "grpc-message", "grpc-status-details-bin"]);
    }

    #[test]
    fn an_applications_own_fields_pass() {
        check(true, &["x-sum", "X-Checksum", "x-a", "x-amz-checksum-crc32", "x-amz-trailer-signature", "x-request-id"]);
    }

    #[test]
    fn fields_that_frame_route_or_authenticate_are_dropped() {
        check(false, &["Content-Length", "Transfer-Encoding", "Trailer", "TE", "Connection", "Keep-Alive", "Upgrade"]);
        check(
            false,
            &["Host", "Forwarded", "Via", "Max-Forwards", "Proxy-Connection", "Alt-Used", "Origin", "Referer"],
        );
        check(false, &["Authorization", "Proxy-Authorization", "WWW-Authenticate", "Cookie", "Set-Cookie"]);
        check(
            false,
            &["X-Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Prefix"],
        );
        check(false, &["X-Real-IP", "X-Client-IP", "X-Cluster-Client-IP", "X-Original-URL", "X-Rewrite-URL", "X-Host"]);
        check(false, &["X-HTTP-Method", "X-HTTP-Method-Override", "X-Method-Override", "X-Forward-For"]);
        check(false, &["X-Auth-Token", "X-API-Key", "X-Remote-User", "X-User-Id", "X-SSL-Client-Cert", "X-CSRF-Token"]);
    }

    #[test]
    fn fields_that_change_a_request_or_describe_its_content_are_dropped() {
        check(
            false,
            &["Expect", "Range", "If-Match", "If-None-Match", "If-Modified-Since", "If-Range", "Cache-Control"],
        );
        check(false, &["Accept", "Accept-Encoding", "Prefer", "Priority", "grpc-timeout", "grpc-encoding"]);
        check(false, &["Content-Type", "Content-Encoding", "Content-Language", "Content-Range", "Content-Location"]);
        check(false, &["Date", "Age", "Expires", "Location", "Retry-After", "Vary", "Warning", "Allow"]);
    }

    #[test]
    fn unknown_names_without_the_prefix_are_dropped() {
        check(false, &["sum", "checksum", "my-field", "x", "xs", "grpc-anything"]);
    }
}
