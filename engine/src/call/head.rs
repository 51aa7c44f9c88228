//! Converts the head of a request of this process to a [`Head`], whose spans refer to a buffer, as handlers expect.
//!
//! The types of `http` can hold requests that are not valid. Therefore the head is written as HTTP/1 and parsed as if
//! it had come from the network, by the same code and with the same limits. The program's fields Content-Length and
//! Transfer-Encoding are replaced, because the body itself reports its length.

use highwire_proto::h1;
use highwire_proto::{Error, Event, Head, Length, Limits, Role};
use http::request::Parts;
use http::{Method, Version, header};

/// A head, and the bytes that its spans refer to.
#[derive(Debug, Default)]
pub struct CallHead {
    /// The head.
    pub head: Head,
    /// The bytes.
    pub window: Vec<u8>,
}

impl CallHead {
    /// Converts the head of `request`, whose body has the given length.
    ///
    /// # Errors
    /// Returns an error if the parser refuses the head.
    pub fn read(&mut self, request: &Parts, length: Length, limits: &Limits) -> Result<(), Error> {
        self.window.clear();
        write(request, length, &mut self.window);
        let received = h1::Connection::new(Role::Server).receive(&self.window, &mut self.head, limits)?;
        // A field's value cannot have a line end, and the empty line is ours, so the parser uses all bytes.
        debug_assert!(matches!(received.event, Event::Head(_)) && received.consumed == self.window.len());
        self.head.length = length;
        self.head.version = match request.version {
            Version::HTTP_09 | Version::HTTP_10 => highwire_proto::Version::Http10,
            Version::HTTP_11 => highwire_proto::Version::Http11,
            // HTTP/2 and HTTP/3 heads have the same parts.
            _ => highwire_proto::Version::Http2,
        };
        Ok(())
    }
}

/// Writes a request's head as HTTP/1.
fn write(request: &Parts, length: Length, out: &mut Vec<u8>) {
    let uri = &request.uri;
    let authority = uri.authority().map(|authority| authority.as_str().as_bytes());
    out.extend_from_slice(request.method.as_str().as_bytes());
    out.push(b' ');
    if request.version <= Version::HTTP_11
        && let (Some(scheme), Some(authority)) = (uri.scheme_str(), authority)
    {
        // This is the absolute form of a target, as a client sends it to a proxy.
        [scheme.as_bytes(), b"://", authority].iter().for_each(|part| out.extend_from_slice(part));
    }
    match uri.path_and_query().map(|target| target.as_str()) {
        None | Some("") => out.push(b'/'),
        Some(target) => out.extend_from_slice(target.as_bytes()),
    }
    let is_named = authority.is_some() || request.headers.contains_key(header::HOST);
    // HTTP/1.1 requires a Host field; HTTP/1.0 does not.
    out.extend_from_slice(if is_named { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" });
    if let Some(authority) = authority {
        write_field(out, b"host", authority);
    }
    for (name, value) in &request.headers {
        let is_ours = name == header::CONTENT_LENGTH || name == header::TRANSFER_ENCODING;
        if !is_ours && (name != header::HOST || authority.is_none()) {
            write_field(out, name.as_str().as_bytes(), value.as_bytes());
        }
    }
    match length {
        Length::Exact(length) => write_field(out, b"content-length", length.to_string().as_bytes()),
        Length::Empty if request.method == Method::POST || request.method == Method::PUT => {
            write_field(out, b"content-length", b"0");
        }
        Length::Empty | Length::Unknown => {}
    }
    out.extend_from_slice(b"\r\n");
}

fn write_field(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    [name, b": ", value, b"\r\n"].iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the target, authority and version that are read, or the status of the error.
    fn check(request: http::request::Builder, expected: Result<(&str, &str, highwire_proto::Version), u16>) {
        let (request, ()) = request.body(()).expect("a request").into_parts();
        let mut call = CallHead::default();
        let read = call.read(&request, Length::Unknown, &Limits::default());
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let got = read.map_err(|error| error.status()).map(|()| {
            let (head, window) = (&call.head, &call.window);
            (words(head.target.whole.of(window)), words(head.authority(window)), head.version)
        });
        let got = got.as_ref().map(|(target, authority, version)| (target.as_str(), authority.as_str(), *version));
        let got = got.map_err(|status| *status);
        assert_eq!(got, expected, "{request:?}");
    }

    #[test]
    fn requests_are_read_as_if_they_had_come_from_the_network() {
        use highwire_proto::Version::{Http2, Http10, Http11};
        let get = |uri: &str| http::Request::builder().uri(uri);
        check(get("/a?b=c"), Ok(("/a?b=c", "", Http11)));
        check(get("/a").header("host", "x:1"), Ok(("/a", "x:1", Http11)));
        check(get("/a").version(Version::HTTP_10), Ok(("/a", "", Http10)));
        check(get("http://x/a").header("host", "other"), Ok(("http://x/a", "x", Http11)));
        check(get("https://x/a?b").version(Version::HTTP_2), Ok(("/a?b", "x", Http2)));
        check(get("https://x").version(Version::HTTP_2), Ok(("/", "x", Http2)));
        check(get("*").method("OPTIONS"), Ok(("*", "", Http11)));
        check(get("*"), Err(400));
        check(get("/a").header("host", "x").header("host", "y"), Err(400));
        check(get("/a").header("host", "a b"), Err(400));
        check(get("/a").header("transfer-encoding", "odd").header("content-length", "x"), Ok(("/a", "", Http11)));
        check(get("/a").header("x", "y".repeat(20_000)), Err(431));
        check(get(&format!("/{}", "y".repeat(20_000))), Err(414));
        check((0..200).fold(get("/a"), |get, at| get.header(format!("x-{at}"), "y")), Err(431));
        check((0..60).fold(get("/a"), |get, at| get.header(format!("x-{at}"), "y".repeat(1000))), Err(431));
    }
}
