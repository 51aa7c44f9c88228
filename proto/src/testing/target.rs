//! Compares our parser of targets and hosts with one that applies the grammar of RFC 9112 section 3.2 and RFC 3986
//! section 3.2.2 by splitting text, with the deviations that conformance/README.md lists.

use crate::scan::naive::Naive;
use crate::scan::swar::Swar;
use crate::scan::{self, Job, Scanner};
use crate::{Error, Form, Method, Span, Target, is_host, target};
use alloc::vec::Vec;

const METHODS: [Method; 10] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Connect,
    Method::Options,
    Method::Trace,
    Method::Patch,
    Method::Extension,
];

/// Parses a target. The first byte of the input chooses the method, the rest is the text. Asserts that the target is
/// accepted exactly if it obeys the grammar, that its parts are those of the grammar, and that the machine's scanners
/// agree. Checks the same text as the value of a Host field.
///
/// # Panics
/// Panics if one of these does not hold.
pub fn target(input: &[u8]) {
    let Some((&number, text)) = input.split_first() else { return };
    assert_eq!(is_host(text), is_authority(text, Port::Optional), "as a host: {}", text.escape_ascii());
    let method = METHODS[usize::from(number) % METHODS.len()];
    let bytes = [text, b" "].concat();
    let text = text.split(|&byte| byte == b' ').next().unwrap_or_default();
    let parsed = Parse(&bytes, method).run::<Naive>();
    assert_eq!(parsed, Parse(&bytes, method).run::<Swar>(), "naive and swar");
    assert_eq!(parsed, scan::with(Parse(&bytes, method)), "naive and chosen");
    let part = |span: Span| {
        assert!(span.start <= span.end && usize::from(span.end) <= text.len(), "{span:?} leaves the target");
        span.of(text)
    };
    let parsed = parsed.ok().map(|(end, target)| {
        assert_eq!(end, Some(text.len()), "a space ends the target");
        assert_eq!(part(target.whole), text, "the whole target");
        Parts {
            form: target.form,
            path: part(target.path),
            query: target.query.map(part),
            authority: part(target.authority),
            https: target.https,
            encoded: target.encoded,
        }
    });
    assert_eq!(parsed, parts(method, text), "we (left) and the grammar (right): {}", text.escape_ascii());
}

struct Parse<'b>(&'b [u8], Method);

impl Job for Parse<'_> {
    type Output = Result<(Option<usize>, Target), Error>;

    #[inline(always)]
    fn run<S: Scanner>(self) -> Self::Output {
        let mut found = Target::default();
        target::parse::<S>(self.0, 0, self.1, &mut found).map(|end| (end, found))
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Parts<'b> {
    form: Form,
    path: &'b [u8],
    query: Option<&'b [u8]>,
    authority: &'b [u8],
    https: bool,
    encoded: bool,
}

/// Splits a target into its parts, by the four forms of section 3.2. Returns `None` if the target has none of these
/// forms.
fn parts(method: Method, text: &[u8]) -> Option<Parts<'_>> {
    let (before, query) = match text.iter().position(|&byte| byte == b'?') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    // A path may have bytes that browsers send unencoded, and a query a few more, also a percent sign without digits.
    let in_path = |byte: u8| is_unreserved_or_delimiter(byte) || b":@/|[]^".contains(&byte);
    let in_query = |byte: u8| in_path(byte) || b"?{}`\\%".contains(&byte);
    let written = |part| is_written(part, in_path) && !part.windows(3).any(|three| three == b"%00");
    if !written(before) || !is_written(query.unwrap_or_default(), in_query) {
        return None;
    }
    let nothing = Parts { form: Form::Origin, path: b"", query, authority: b"", https: false, encoded: false };
    if method == Method::Connect {
        let fits = is_authority(text, Port::Required);
        return fits.then_some(Parts { form: Form::Authority, authority: text, ..nothing });
    }
    if text == b"*" {
        return (method == Method::Options).then_some(Parts { form: Form::Asterisk, ..nothing });
    }
    if before.first() == Some(&b'/') {
        return Some(Parts { path: before, encoded: before.contains(&b'%'), ..nothing });
    }
    let lower = before.to_ascii_lowercase();
    let https = lower.starts_with(b"https://");
    if !https && !lower.starts_with(b"http://") {
        return None;
    }
    let rest = &before[if https { 8 } else { 7 }..];
    let (authority, path) = rest.split_at(rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len()));
    let fits = is_authority(authority, Port::Optional);
    fits.then_some(Parts { form: Form::Absolute, path, authority, https, encoded: path.contains(&b'%'), ..nothing })
}

/// Returns true if the text consists of bytes of a class and of percent signs with two hex digits.
fn is_written(mut text: &[u8], class: impl Fn(u8) -> bool) -> bool {
    while let Some((&byte, rest)) = text.split_first() {
        text = match (byte, rest) {
            (b'%', [high, low, rest @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => rest,
            _ if class(byte) => rest,
            _ => return false,
        };
    }
    true
}

fn is_unreserved_or_delimiter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=".contains(&byte)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Optional,
    Required,
}

/// Returns true for `uri-host [ ":" port ]`, with a host that is not empty and a port of at most five digits up to
/// 65,535.
fn is_authority(text: &[u8], port: Port) -> bool {
    let host_end = match text.first() {
        Some(b'[') => text.iter().position(|&byte| byte == b']').map_or(text.len(), |at| at + 1),
        _ => text.iter().position(|&byte| byte == b':').unwrap_or(text.len()),
    };
    let (host, rest) = text.split_at(host_end);
    let number = match rest.split_first() {
        None => None,
        Some((b':', digits)) => Some(digits),
        Some(_) => return false,
    };
    let fits = |digits: &[u8]| {
        digits.len() <= 5
            && digits.iter().all(u8::is_ascii_digit)
            && digits.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')) <= 65_535
    };
    let has_port = number.is_some_and(|digits| !digits.is_empty());
    is_uri_host(host) && number.is_none_or(fits) && (port == Port::Optional || has_port)
}

fn is_uri_host(host: &[u8]) -> bool {
    let Some(inner) = host.strip_prefix(b"[") else {
        return !host.is_empty() && is_written(host, is_unreserved_or_delimiter);
    };
    let Some(inner) = inner.strip_suffix(b"]") else { return false };
    if let [b'v' | b'V', future @ ..] = inner {
        let mut halves = future.splitn(2, |&byte| byte == b'.');
        let (version, address) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
        return !version.is_empty()
            && version.iter().all(u8::is_ascii_hexdigit)
            && !address.is_empty()
            && address.iter().all(|&byte| is_unreserved_or_delimiter(byte) || byte == b':');
    }
    is_ipv6(inner)
}

/// Returns true for eight groups, or fewer around one `::`. The last two groups may be written as an IPv4 address.
fn is_ipv6(text: &[u8]) -> bool {
    let gap = text.windows(2).position(|two| two == b"::");
    let Some(gap) = gap else { return groups(text, true) == Some(8) };
    let (before, after) = (&text[..gap], &text[gap + 2..]);
    let count = |part: &[u8], last| if part.is_empty() { Some(0) } else { groups(part, last) };
    matches!((count(before, false), count(after, true)), (Some(before), Some(after)) if before + after <= 7)
}

/// Returns the number of 16-bit groups, or `None` if the text has anything else. `last` is true if the groups end an
/// address and may thus end in an IPv4 address.
fn groups(text: &[u8], last: bool) -> Option<usize> {
    let words: Vec<&[u8]> = text.split(|&byte| byte == b':').collect();
    let mut count = 0;
    for (number, word) in words.iter().enumerate() {
        if last && number + 1 == words.len() && word.contains(&b'.') {
            return is_ipv4(word).then_some(count + 2);
        }
        if !(1..=4).contains(&word.len()) || !word.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

fn is_ipv4(text: &[u8]) -> bool {
    let octet = |word: &[u8]| {
        let plain = word == b"0" || (!word.is_empty() && word[0] != b'0');
        plain
            && word.len() <= 3
            && word.iter().all(u8::is_ascii_digit)
            && word.iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0')) <= 255
    };
    text.split(|&byte| byte == b'.').count() == 4 && text.split(|&byte| byte == b'.').all(octet)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_has_the_deviations_of_the_parser() {
        let texts =
            ["/a?%g0", "/a?%", "/a?b%2", "/%g0", "/%", "/%00", "/a?%00", "/a|b?{c}", "http://a/b?%zz", "*", "a:1", "a"];
        for text in texts {
            for number in 0..METHODS.len() as u8 {
                target(&[&[number], text.as_bytes()].concat());
            }
        }
    }
}
