//! Turns the decoded fields of a section into a [`Head`] like that of an HTTP/1 message (RFC 9113 sections 8.2 and
//! 8.3).
//!
//! A section that could be read differently after a server forwards it as HTTP/1 counts as malformed and is not
//! repaired, because request smuggling by downgrade exploits such differences.

use crate::scan::{self, Job, LOWER_NAME, Scanner};
use crate::{Field, Head, Known, Length, Limits, Method, Span, Version, target};
use alloc::vec::Vec;

/// The largest size in bytes of a list of fields, measured as in RFC 9113 section 6.5.2, even if the limits allow more.
/// 16-bit spans must reach the fields, a copy of the path and a copy of the cookies.
pub(super) const MOST_LIST_BYTES: u32 = 32_000;

/// The reason why a field section is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Malformed {
    /// The stream must be reset without a response.
    Malformed,
    /// A server responds with the status of this error.
    Answer(crate::Error),
}

/// The kind of a field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Request,
    Response,
    Trailers,
}

/// Reads a section. On entry `head.fields` has the decoded lines, pseudo-fields among them, with spans into `window`.
/// On return it has only the fields that are not pseudo-fields, and the rest of the head is filled in. `ends` is true
/// if no body follows.
pub(super) fn read(
    section: Section,
    window: &mut Vec<u8>,
    ends: bool,
    limits: &Limits,
    head: &mut Head,
) -> Result<(), Malformed> {
    scan::with(Read { section, window, ends, limits, head })
}

struct Read<'a> {
    section: Section,
    window: &'a mut Vec<u8>,
    ends: bool,
    limits: &'a Limits,
    head: &'a mut Head,
}

/// The spans of the pseudo-fields' values.
#[derive(Default)]
struct Pseudo {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    protocol: Option<Span>,
    status: Option<Span>,
}

impl Pseudo {
    /// Returns the place for a pseudo-field's value, or `None` if the section must not have the pseudo-field.
    fn place(&mut self, section: Section, name: &[u8]) -> Option<&mut Option<Span>> {
        Some(match (section, name) {
            (Section::Request, b":method") => &mut self.method,
            (Section::Request, b":scheme") => &mut self.scheme,
            (Section::Request, b":authority") => &mut self.authority,
            (Section::Request, b":path") => &mut self.path,
            (Section::Request, b":protocol") => &mut self.protocol,
            (Section::Response, b":status") => &mut self.status,
            _ => return None,
        })
    }
}

impl Job for Read<'_> {
    type Output = Result<(), Malformed>;

    #[inline(always)]
    fn run<S: Scanner>(self) -> Result<(), Malformed> {
        let Read { section, window, ends, limits, head } = self;
        let mut pseudo = Pseudo::default();
        let (mut kept, mut too_long) = (0, false);
        let (mut cookies, mut length) = (0u32, None);
        // The names and values follow each other without separators, so one fast scan over all of them finds every byte that
        // no value may have. No name may have it either.
        if S::value_end(window, 0) != window.len() {
            return Err(Malformed::Malformed);
        }
        for at in 0..head.fields.len() {
            let Field { name: name_span, value: value_span, .. } = head.fields[at];
            let (name, value) = (name_span.of(window), value_span.of(window));
            check_ends(value)?;
            if name.len() + value.len() > limits.field_bytes as usize {
                too_long = true;
            }
            if name.first() == Some(&b':') {
                let place = pseudo.place(section, name).ok_or(Malformed::Malformed)?;
                // Each pseudo-field may occur once, and only before all other fields.
                if kept != 0 || place.replace(value_span).is_some() {
                    return Err(Malformed::Malformed);
                }
                continue;
            }
            check_name(name)?;
            let known = Known::from_name(name);
            match known {
                Known::Connection | Known::TransferEncoding | Known::Upgrade => return Err(Malformed::Malformed),
                Known::ContentLength => length = Some(content_length(length, value)?),
                Known::Other if is_of_a_connection(name, value) => return Err(Malformed::Malformed),
                Known::Other if name == b"cookie" => cookies += 1,
                _ => {}
            }
            head.repeated |= head.seen & known.bit();
            head.seen |= known.bit();
            head.fields[kept] = Field { name: name_span, value: value_span, known };
            kept += 1;
        }
        if too_long || (section == Section::Trailers && window.len() > limits.trailer_bytes as usize) {
            return Err(Malformed::Answer(crate::Error::FieldTooLong));
        }
        if kept > limits.field_count as usize {
            return Err(Malformed::Answer(crate::Error::TooManyFields));
        }
        head.fields.truncate(kept);
        if cookies > 1 {
            join_cookies(window, head);
        }
        head.version = Version::Http2;
        head.keep_alive = true;
        head.length = match length {
            _ if section == Section::Trailers => Length::Empty,
            Some(length) if ends && length != 0 && section == Section::Request => return Err(Malformed::Malformed),
            _ if ends => Length::Empty,
            Some(length) => Length::Exact(length),
            None => Length::Unknown,
        };
        match section {
            Section::Request => {
                request::<S>(&pseudo, window, limits, head)?;
                expectation(window, head)
            }
            Section::Response => response(&pseudo, window, head),
            Section::Trailers => Ok(()),
        }
    }
}

/// Refuses white space at either end of a value (RFC 9113 section 8.2.1).
#[inline(always)]
fn check_ends(value: &[u8]) -> Result<(), Malformed> {
    let blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if blank(value.first()) || blank(value.last()) { Err(Malformed::Malformed) } else { Ok(()) }
}

/// Refuses a name that is not a token in lower case.
#[inline(always)]
fn check_name(name: &[u8]) -> Result<(), Malformed> {
    let is_valid = !name.is_empty() && name.iter().all(|&byte| scan::is(LOWER_NAME, byte));
    if is_valid { Ok(()) } else { Err(Malformed::Malformed) }
}

/// Returns true for a field that belongs to a connection and must not occur (RFC 9113 section 8.2.2), and for TE with a
/// value other than `trailers`.
fn is_of_a_connection(name: &[u8], value: &[u8]) -> bool {
    match name {
        b"keep-alive" | b"proxy-connection" => true,
        b"te" => !value.eq_ignore_ascii_case(b"trailers"),
        _ => false,
    }
}

/// Reads Content-Length, which must occur only once and have at most 19 digits. `before` is the value of an earlier
/// field.
fn content_length(before: Option<u64>, value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || value.len() > 19 || !value.iter().all(u8::is_ascii_digit) || before.is_some() {
        return Err(Malformed::Malformed);
    }
    Ok(value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// Joins cookies into one field, as handlers expect them. A client may split them, for better compression (RFC 9113
/// section 8.2.3).
#[cold]
fn join_cookies(window: &mut Vec<u8>, head: &mut Head) {
    let is_cookie = |window: &[u8], field: &Field| field.name.of(window) == b"cookie";
    let start = window.len();
    let mut first = None;
    for (at, field) in head.fields.iter().enumerate() {
        if is_cookie(window, field) {
            if first.is_some() {
                window.extend_from_slice(b"; ");
            }
            first = first.or(Some(at));
            window.extend_from_within(field.value.start as usize..field.value.end as usize);
        }
    }
    let Some(first) = first else { return };
    head.fields[first].value = Span::new(start, window.len());
    let mut at = 0;
    head.fields.retain(|field| {
        at += 1;
        at <= first + 1 || !is_cookie(window, field)
    });
}

#[inline(always)]
fn request<S: Scanner>(
    pseudo: &Pseudo,
    window: &mut Vec<u8>,
    limits: &Limits,
    head: &mut Head,
) -> Result<(), Malformed> {
    let method = pseudo.method.ok_or(Malformed::Malformed)?;
    let token = method.of(window);
    if token.is_empty() || S::name_end(token, 0) != token.len() {
        return Err(Malformed::Malformed);
    }
    head.method_span = method;
    head.method = Method::from_token(token);
    let authority = pseudo.authority.unwrap_or_default();
    // An empty `:authority` is no valid host, and Host does not replace it (RFC 9110 section 4.2.1, RFC 9113 section
    // 8.3.1).
    if pseudo.authority.is_some_and(|authority| !target::is_host(authority.of(window))) {
        return Err(Malformed::Malformed);
    }
    check_host(authority, window, head)?;
    head.target = crate::Target::default();
    let is_connect = head.method == Method::Connect;
    head.upgrade = is_connect;
    // The bytes after the head go through the tunnel, which has no length (RFC 9110 section 9.3.6).
    if is_connect && head.seen & Known::ContentLength.bit() != 0 {
        return Err(Malformed::Malformed);
    }
    if is_connect && pseudo.protocol.is_none() {
        // A tunnel to a host and a port (RFC 9113 section 8.5).
        if !target::is_host_and_port(authority.of(window)) || pseudo.path.is_some() || pseudo.scheme.is_some() {
            return Err(Malformed::Malformed);
        }
        head.target.form = crate::Form::Authority;
        (head.target.whole, head.target.authority) = (authority, authority);
        return Ok(());
    }
    head.protocol = pseudo.protocol.unwrap_or_default();
    let protocol = head.protocol.of(window);
    // The protocol is one name, as in Upgrade but without a list (RFC 8441 section 4).
    let is_name = !protocol.is_empty() && S::name_end(protocol, 0) == protocol.len();
    if pseudo.protocol.is_some() && !(is_connect && is_name) {
        return Err(Malformed::Malformed);
    }
    let (Some(scheme), Some(path)) = (pseudo.scheme, pseudo.path) else { return Err(Malformed::Malformed) };
    let is_https = scheme.of(window).eq_ignore_ascii_case(b"https");
    if !is_https && !scheme.of(window).eq_ignore_ascii_case(b"http") {
        return Err(Malformed::Malformed);
    }
    // The path is copied with a space after it, as in a request line, so that the parser of HTTP/1 can check it.
    let path_bytes = path.end - path.start;
    if u32::from(path_bytes) > limits.target_bytes {
        return Err(Malformed::Answer(crate::Error::TargetTooLong));
    }
    let start = window.len();
    window.extend_from_within(path.start as usize..path.end as usize);
    let end = window.len();
    window.push(b' ');
    // An extended CONNECT has the same form of target as other requests.
    let method = if is_connect { Method::Get } else { head.method };
    match target::parse::<S>(window, start, method, &mut head.target) {
        Ok(Some(found)) if found == end && end > start => {}
        _ => return Err(Malformed::Malformed),
    }
    // `:path` must not have absolute form.
    match head.target.form {
        crate::Form::Origin | crate::Form::Asterisk => {}
        _ => return Err(Malformed::Malformed),
    }
    head.target.https = is_https;
    head.target.authority = authority;
    Ok(())
}

/// Requires Host or `:authority`. If both are present, they must be equal apart from case (RFC 9113 section 8.3.1).
#[inline(always)]
fn check_host(authority: Span, window: &[u8], head: &Head) -> Result<(), Malformed> {
    if head.seen & Known::Host.bit() == 0 {
        return if authority.is_empty() { Err(Malformed::Malformed) } else { Ok(()) };
    }
    let host = head.known(Known::Host).map_or(&[][..], |field| field.value.of(window));
    let agrees = authority.is_empty() || host.eq_ignore_ascii_case(authority.of(window));
    if head.repeated & Known::Host.bit() != 0 || !agrees || !target::is_host(host) {
        return Err(Malformed::Malformed);
    }
    Ok(())
}

/// Checks Expect. As in HTTP/1, 100-continue is the only expectation (RFC 9110 section 10.1.1).
#[inline(always)]
fn expectation(window: &[u8], head: &mut Head) -> Result<(), Malformed> {
    if head.seen & Known::Expect.bit() == 0 {
        return Ok(());
    }
    let mut values =
        head.fields.iter().filter(|field| field.known == Known::Expect).map(|field| field.value.of(window));
    if !values.all(|value| value.eq_ignore_ascii_case(b"100-continue")) {
        return Err(Malformed::Answer(crate::Error::UnknownExpectation));
    }
    head.expects_continue = head.length != Length::Empty;
    Ok(())
}

fn response(pseudo: &Pseudo, window: &[u8], head: &mut Head) -> Result<(), Malformed> {
    let &[hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] =
        pseudo.status.ok_or(Malformed::Malformed)?.of(window)
    else {
        return Err(Malformed::Malformed);
    };
    head.status = u16::from(hundreds - b'0') * 100 + u16::from(tens - b'0') * 10 + u16::from(ones - b'0');
    // HTTP/2 has no status 101 (RFC 9113 section 8.6).
    if head.status == 101 { Err(Malformed::Malformed) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::{String, ToString};

    fn read_lines(section: Section, lines: &[(&str, &str)], ends: bool) -> Result<(Head, Vec<u8>), Malformed> {
        let (mut head, mut window) = (Head::default(), Vec::new());
        for (name, value) in lines {
            let start = window.len();
            window.extend_from_slice(name.as_bytes());
            let middle = window.len();
            window.extend_from_slice(value.as_bytes());
            let (name, value) = (Span::new(start, middle), Span::new(middle, window.len()));
            head.fields.push(Field { name, value, known: Known::Other });
        }
        read(section, &mut window, ends, &Limits::default(), &mut head).map(|()| (head, window))
    }

    const GET: [(&str, &str); 4] = [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "h")];

    fn with(extra: &[(&'static str, &'static str)]) -> Result<(Head, Vec<u8>), Malformed> {
        read_lines(Section::Request, &[&GET[..], extra].concat(), true)
    }

    #[test]
    fn a_request_has_the_parts_that_it_has_in_http_1() {
        let (head, window) = with(&[("accept", "*/*"), ("x", "")]).expect("a request");
        let text = |span: Span| String::from_utf8_lossy(span.of(&window)).to_string();
        assert_eq!(
            (head.method, text(head.target.path), head.target.query.map(text)),
            (Method::Get, "/a".into(), Some("b".into()))
        );
        assert_eq!((text(head.target.authority), head.target.https), ("h".into(), true));
        assert_eq!((head.version, head.length, head.fields.len()), (Version::Http2, Length::Empty, 2));
    }

    #[test]
    fn a_body_may_wait_for_a_go_ahead() {
        let read = |value, ends| read_lines(Section::Request, &[&GET[..], &[("expect", value)]].concat(), ends);
        assert_eq!(read("100-Continue", false).map(|(head, _)| head.expects_continue), Ok(true));
        assert_eq!(read("100-continue", true).map(|(head, _)| head.expects_continue), Ok(false));
        assert_eq!(read("200-ok", false).map(drop), Err(Malformed::Answer(crate::Error::UnknownExpectation)));
    }

    #[test]
    fn pieces_of_cookies_become_one_field() {
        let (head, window) =
            with(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")]).expect("a request");
        assert_eq!(head.field(&window, b"cookie"), Some(&b"a=1; b=2; c=3"[..]));
        assert_eq!(head.fields.len(), 2);
    }

    #[test]
    fn what_would_be_read_differently_elsewhere_is_malformed() {
        for extra in [
            ("connection", "close"),
            ("keep-alive", "1"),
            ("proxy-connection", "x"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "x"),
            ("te", "gzip"),
            ("Upper", "x"),
            ("", "x"),
            ("sp ace", "x"),
            ("col:on", "x"),
            ("x", "a\r\nb"),
            ("x", "a\0b"),
            ("x", " a"),
            ("x", "a\t"),
            (":path", "/"),
            (":status", "200"),
            (":unknown", "x"),
            (":protocol", "websocket"),
            ("content-length", "1"),
            ("content-length", "-0"),
            ("host", "other"),
            ("host", "h/"),
        ] {
            assert_eq!(with(&[extra]).map(drop), Err(Malformed::Malformed), "{extra:?}");
        }
        assert_eq!(with(&[("te", "trailers"), ("content-length", "0"), ("host", "H")]).map(drop), Ok(()));
        assert_eq!(with(&[("a", "b"), (":path", "/")]).map(drop), Err(Malformed::Malformed), "after a field");
        for without in 0..4 {
            let mut lines = GET.to_vec();
            lines.remove(without);
            assert_eq!(read_lines(Section::Request, &lines, true).map(drop), Err(Malformed::Malformed), "{lines:?}");
        }
        for path in ["", "a", "http://h/", "*", "/a b", "/%zz"] {
            let lines = [(":method", "GET"), (":scheme", "http"), (":path", path), (":authority", "h")];
            assert_eq!(read_lines(Section::Request, &lines, true).map(drop), Err(Malformed::Malformed), "{path}");
        }
        // If there is an `:authority`, Host does not replace it (RFC 9113 section 8.3.1).
        let empty = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", ""), ("host", "h")];
        assert_eq!(read_lines(Section::Request, &empty, true).map(drop), Err(Malformed::Malformed));
        let two = [&GET[..], &[("content-length", "1"), ("content-length", "1")]].concat();
        assert_eq!(read_lines(Section::Request, &two, false).map(drop), Err(Malformed::Malformed));
    }

    #[test]
    fn connect_has_an_authority_only_and_with_a_protocol_all() {
        let tunnel = [(":method", "CONNECT"), (":authority", "h:1")];
        let (head, _) = read_lines(Section::Request, &tunnel, false).expect("a tunnel");
        for authority in ["h", "h:", ":1", "h:x", "u@h:1", "[::1]"] {
            let lines = [(":method", "CONNECT"), (":authority", authority)];
            assert_eq!(read_lines(Section::Request, &lines, false).map(drop), Err(Malformed::Malformed), "{authority}");
        }
        for protocol in ["", "web socket", "a\r\nb", "a,b"] {
            let lines = [
                (":method", "CONNECT"),
                (":protocol", protocol),
                (":scheme", "https"),
                (":path", "/c"),
                (":authority", "h"),
            ];
            assert_eq!(read_lines(Section::Request, &lines, false).map(drop), Err(Malformed::Malformed), "{protocol}");
        }
        assert_eq!((head.target.form, head.upgrade), (crate::Form::Authority, true));
        for authority in ["h", "h:", ":1", "h:x", "h:65536", ""] {
            let lines = [(":method", "CONNECT"), (":authority", authority), ("host", "h")];
            assert_eq!(read_lines(Section::Request, &lines, false).map(drop), Err(Malformed::Malformed), "{authority}");
        }
        let with_length = [&tunnel[..], &[("content-length", "0")]].concat();
        assert_eq!(read_lines(Section::Request, &with_length, false).map(drop), Err(Malformed::Malformed));
        let with_path = [&tunnel[..], &[(":path", "/")]].concat();
        assert_eq!(read_lines(Section::Request, &with_path, false).map(drop), Err(Malformed::Malformed));
        let extended = [
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "https"),
            (":path", "/c"),
            (":authority", "h"),
        ];
        for protocol in ["", "web socket", "a/b"] {
            let mut lines = extended;
            lines[1].1 = protocol;
            assert_eq!(read_lines(Section::Request, &lines, false).map(drop), Err(Malformed::Malformed), "{protocol}");
        }
        let (head, window) = read_lines(Section::Request, &extended, false).expect("an extended CONNECT");
        assert_eq!((head.protocol.of(&window), head.target.path.of(&window)), (&b"websocket"[..], &b"/c"[..]));
    }

    #[test]
    fn responses_and_trailers() {
        let (head, _) = read_lines(Section::Response, &[(":status", "204"), ("a", "b")], true).expect("a response");
        assert_eq!((head.status, head.length), (204, Length::Empty));
        for status in ["20", "2000", "abc", "101", ""] {
            assert_eq!(
                read_lines(Section::Response, &[(":status", status)], true).map(drop),
                Err(Malformed::Malformed)
            );
        }
        assert!(read_lines(Section::Trailers, &[("a", "b")], true).is_ok());
        assert_eq!(read_lines(Section::Trailers, &[(":status", "200")], true).map(drop), Err(Malformed::Malformed));
    }
}
