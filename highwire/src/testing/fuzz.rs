//! The assertions of the fuzz targets for forms, media types, cookies, ranges, conditional fields and compressed
//! WebSocket messages. Most of them compare a parser with a naive one. Not part of the public API.

use crate::cookie::{Cookie, Cookies, parse};
use crate::form::Limits;
use crate::form::parser::{Event, Fault, Parser};
use crate::message::media::MediaType;
use bytes::Bytes;

/// Inflates messages of a WebSocket, divided in several ways, and deflates and inflates them.
pub fn inflate(input: &[u8]) {
    crate::ws::check_inflate(input);
}

/// Parses a multipart body that arrives in pieces. Returns the result as text: `[head|data] [head|data] end`, or the
/// parts up to a fault, then the fault and its offset.
pub(crate) fn read_parts(parser: &mut Parser, pieces: &[&[u8]]) -> String {
    let (mut read, mut in_part) = (Vec::new(), false);
    let mut pieces = pieces.iter();
    let fault = loop {
        match parser.next() {
            Ok(Event::NeedMore) => match pieces.next() {
                Some(piece) => parser.push(Bytes::copy_from_slice(piece)),
                None => match parser.finish() {
                    Ok(()) => continue,
                    Err(fault) => break Some(fault),
                },
            },
            Ok(Event::Head(head)) => {
                in_part = true;
                read.push(b'[');
                read.extend_from_slice(&head);
                read.push(b'|');
            }
            Ok(Event::Data(data)) => {
                assert!(in_part && !data.is_empty(), "data stands within a part and is not empty");
                read.extend_from_slice(&data);
            }
            Ok(Event::PartEnd) => {
                in_part = false;
                read.extend_from_slice(b"] ");
            }
            Ok(Event::End) => break None,
            Err(fault) => break Some(fault),
        }
    };
    let mut read = String::from_utf8_lossy(&read).into_owned();
    read.push_str(&match fault {
        None => "end".to_string(),
        Some(fault) => format!("{}{fault:?} at {}", if in_part { " " } else { "" }, parser.offset()),
    });
    read
}

/// The naive counterpart of [`read_parts`] for a whole body: searches for each delimiter byte by byte.
pub(crate) fn read_parts_naively(body: &[u8], boundary: &str, limits: &Limits) -> String {
    let delimiter = [b"\r\n--", boundary.as_bytes()].concat();
    let over = body.len() as u64 > limits.total_bytes;
    let text = [b"\r\n", &body[..body.len().min(limits.total_bytes as usize)]].concat();
    let mut read = Vec::new();
    let find = |from: usize, what: &[u8]| (from..text.len()).find(|&at| text[at..].starts_with(what));
    let end = |read: &[u8], fault: Fault, at: usize, space: &str| {
        let fault = if over && fault == Fault::CutShort { Fault::Total } else { fault };
        format!("{}{space}{fault:?} at {}", String::from_utf8_lossy(read), at.saturating_sub(2))
    };
    let Some(mut at) = find(0, &delimiter) else {
        let begun = (0..text.len()).find(|&at| delimiter.starts_with(&text[at..])).unwrap_or(text.len());
        let fault = if begun > limits.head_bytes + 2 { Fault::Preamble } else { Fault::CutShort };
        return end(&read, fault, 0, "");
    };
    if at > limits.head_bytes + 2 {
        return end(&read, Fault::Preamble, 0, "");
    }
    for part in 0.. {
        at += delimiter.len();
        let rest = &text[at..];
        let is_last = rest.starts_with(b"--");
        let line = &rest[if is_last { 2 } else { 0 }..];
        let padding = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let behind = &line[padding..];
        let fault_at = at + if is_last { 2 } else { 0 };
        let may_become = b"\r\n".starts_with(behind) || (!is_last && padding == 0 && behind == b"-");
        if padding > 64 || !(behind.starts_with(b"\r\n") || may_become) {
            return end(&read, Fault::Delimiter, fault_at, "");
        }
        if is_last && (behind.starts_with(b"\r\n") || (behind.is_empty() && !over)) {
            return format!("{}end", String::from_utf8_lossy(&read));
        }
        if !behind.starts_with(b"\r\n") {
            return end(&read, Fault::CutShort, fault_at, "");
        }
        if part == limits.parts {
            return end(&read, Fault::Parts, at, "");
        }
        at += padding + 2;
        let head = match text[at..].starts_with(b"\r\n") {
            true => Some(at),
            false => find(at, b"\r\n\r\n").map(|found| found + 2),
        };
        match head {
            None if text.len() - at > limits.head_bytes + 1 => return end(&read, Fault::Head, at, ""),
            None => return end(&read, Fault::CutShort, at, ""),
            Some(head) if head - at > limits.head_bytes => return end(&read, Fault::Head, at, ""),
            Some(head) => {
                read.push(b'[');
                read.extend_from_slice(&text[at..head]);
                read.push(b'|');
                at = head;
            }
        }
        let found = find(at, &delimiter);
        let stop = found.unwrap_or_else(|| {
            (at..text.len()).find(|&begun| delimiter.starts_with(&text[begun..])).unwrap_or(text.len())
        });
        read.extend_from_slice(text.get(at + 2..stop).unwrap_or_default());
        if found.is_none() {
            return end(&read, Fault::CutShort, stop, " ");
        }
        read.extend_from_slice(b"] ");
        at = stop;
    }
    unreachable!("the loop over the parts ends only with a return")
}

/// Parses a multipart body with the boundary `B`: whole, cut at equal distances, and in two pieces. The first two bytes
/// of the input choose the limits and the cuts; the rest is the body.
///
/// # Panics
/// Panics if a result differs from that of the naive parser.
pub fn multipart(input: &[u8]) {
    let Some((&[limit, cut], body)) = input.split_first_chunk() else { return };
    let limits = Limits {
        parts: 1 + usize::from(limit % 4),
        head_bytes: 8 << (limit / 4 % 4),
        total_bytes: [40, 200, 100_000, u64::MAX][usize::from(limit / 16 % 4)],
        ..Limits::default()
    };
    let parser = || Parser::new("B", limits.clone()).expect("a boundary");
    let naive = read_parts_naively(body, "B", &limits);
    assert_eq!(read_parts(&mut parser(), &[body]), naive, "the whole body");
    let pieces: Vec<&[u8]> = body.chunks(1 + usize::from(cut % 16)).collect();
    assert_eq!(read_parts(&mut parser(), &pieces), naive, "the body in equal pieces");
    let (front, back) = body.split_at(usize::from(cut).min(body.len()));
    assert_eq!(read_parts(&mut parser(), &[front, back]), naive, "the body in two pieces");
    let _ = crate::form::head::parse(&Bytes::copy_from_slice(body));
}

/// Parses a form. If the form is valid, writes it and parses it again.
///
/// # Panics
/// Panics if the second result differs from the first, or if the lenient parser of `serde_urlencoded` returns other
/// pairs.
#[cfg(feature = "json")]
pub fn form(input: &[u8]) {
    let Ok(pairs) = crate::form::urlencoded::pairs(input) else { return };
    let written = serde_urlencoded::to_string(&pairs).expect("a form");
    assert_eq!(crate::form::urlencoded::pairs(written.as_bytes()).as_ref(), Ok(&pairs), "written and parsed again");
    let theirs: Vec<crate::message::fields::Pair<'_>> = serde_urlencoded::from_bytes(input).expect("a form");
    assert_eq!(theirs, pairs, "the result of serde_urlencoded");
}

/// Splits the input into elements, as a list. Then parses the input as a media type. If that is valid, writes it from
/// its parts and parses it again.
///
/// # Panics
/// Panics if an element is empty or not part of the text, or if the second media type differs from the first.
pub fn media_type(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let list: Vec<&str> = crate::message::media::elements(text).collect();
    assert!(list.iter().all(|element| !element.is_empty() && text.contains(element)), "an element is empty or foreign");
    let Some(media_type) = MediaType::parse(text) else { return };
    let mut again = format!("{}/{}", media_type.kind(), media_type.subtype());
    let values = |media_type: &MediaType<'_>| -> Vec<(String, String)> {
        let parameters = media_type.parameters().map(|parameter| parameter.expect("a valid parameter"));
        parameters.map(|(name, value)| (name.to_string(), value.text().into_owned())).collect()
    };
    let expected = values(&media_type);
    for (name, value) in &expected {
        again.push_str(&format!("; {name}=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")));
    }
    let read = MediaType::parse(&again).expect("a media type written from its parts is valid");
    assert_eq!((values(&read), read.kind()), (expected, media_type.kind()), "{again}");
}

/// Parses the input as a client's `Cookie` field. Then sets a cookie with the input as its value, if that is possible,
/// and reads the cookie back.
///
/// # Panics
/// Panics if the cookies differ from those that a naive split of the text gives, or if the value read back is not the
/// input.
pub fn cookies(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let trim = |text: &str| text.trim_matches(|character: char| character.is_ascii_whitespace()).to_string();
    let is_token = |name: &str| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_graphic() && !"\"(),/:;<=>?@[\\]{}".contains(c))
    };
    let mut naive = Vec::new();
    for pair in text.split(';').filter(|pair| pair.contains('=')) {
        let parts: Vec<&str> = pair.splitn(2, '=').collect();
        let (name, mut value) = (trim(parts[0]), trim(parts[1]));
        if value.len() >= 2 && value.starts_with('"') && value.ends_with('"') {
            value = value[1..value.len() - 1].to_string();
        }
        naive.extend(is_token(&name).then_some((name, value)));
    }
    let read: Vec<_> = parse(text).map(|(name, value)| (name.to_string(), value.to_string())).collect();
    assert_eq!(read, naive, "{text:?}");
    let Ok(header) = Cookie::new("a", text).header() else { return };
    let header = header.to_str().expect("ASCII");
    let cookies = Cookies::sent_as(header.split(';').next().unwrap_or_default());
    assert_eq!(cookies.get("a").as_deref(), Some(text), "{header}");
}

/// Parses a Range field for a file of some length: see `files::range`.
///
/// # Panics
/// Panics if the result differs from that of the naive parser.
pub fn ranges(input: &[u8]) {
    crate::files::range::assert_equals_twin(input);
}

/// Evaluates the conditional fields of a request for one file: see `files::validators`.
///
/// # Panics
/// Panics if the result differs from that of the naive evaluation.
pub fn conditions(input: &[u8]) {
    crate::files::validators::assert_equals_twin(input);
}

#[cfg(test)]
mod tests {
    use super::*;

    const MULTIPART: &[&[u8]] = &[
        b"",
        b"--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\ndata\r\n--B--\r\n",
        b"--B \r\n\r\n--B\r\na: b\r\n\r\n\r\n--\r\n--A\r\n\r\r\n--B--epilogue",
        b"preamble\r\n--B\r\n\r\n\r\n--B\r\n\r\n\r\n--B\r\n\r\n--B\r\n\r\n--B\r\n\r\n--B-- ",
        b"--B\r\nheader fields that are longer than most: of the limits\r\nx: y\r\n\r\n",
        b"--Bx",
    ];

    #[test]
    fn multipart_bodies() {
        for body in MULTIPART {
            for limit in 0..64 {
                for cut in [0, 1, 2, 6, 13, 40] {
                    multipart(&[&[limit, cut], *body].concat());
                }
            }
        }
    }

    #[cfg(feature = "json")]
    #[test]
    fn forms() {
        for text in ["", "a=b&c=d+%20%C3%A9&&=&e", "a=%", "a=%ff", "a=b&a=c"] {
            form(text.as_bytes());
        }
    }

    #[test]
    fn media_types() {
        for text in ["", "a/b", "a/b; c=d;e=\"f,\\\"\\g\"", "a/b;", "text/html, a/b;q=0.5", "a/b;c=\"", "/"] {
            media_type(text.as_bytes());
        }
    }

    #[test]
    fn cookies_of_clients_and_ours() {
        for text in ["", "a=b; c=\"d\"; e=\"", "a b=c; =d; e", "%41;\u{e9}\n\"\\,", "a=\u{a0}b\u{2003}"] {
            cookies(text.as_bytes());
        }
    }
}
