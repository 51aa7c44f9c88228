//! The path of a request, relative to the folder.
//!
//! [`highwire_io::file`] decides where a path leads. This module checks only its spelling: it decodes a path once,
//! accepts one decoded path for each file, and refuses hidden files in every spelling unless they are to be served or lie in
//! `.well-known` (RFC 8615).

use percent_encoding::percent_decode;
use std::borrow::Cow;

/// A decoded path relative to the folder. It is empty for the folder itself. With a slash at its end, it can only be
/// the path of a folder in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name<'p>(pub(super) Cow<'p, [u8]>);

impl<'p> Name<'p> {
    /// Parses the percent-encoded path after the route's prefix. Returns `None` if it cannot name a file or folder.
    pub(super) fn parse(text: &'p [u8], hidden: bool) -> Option<Name<'p>> {
        if !text.contains(&b'%') {
            return is_name(text, hidden).then_some(Name(Cow::Borrowed(text)));
        }
        let mut decoded = Vec::with_capacity(text.len());
        for (number, segment) in text.split(|&byte| byte == b'/').enumerate() {
            if number > 0 {
                decoded.push(b'/');
            }
            let begin = decoded.len();
            decoded.extend(percent_decode(segment));
            // An encoded slash is not a separator, and no file name contains a slash.
            if decoded[begin..].contains(&b'/') {
                return None;
            }
        }
        is_name(&decoded, hidden).then_some(Name(Cow::Owned(decoded)))
    }

    /// Returns true if the path is empty or ends with a slash, so that it can only name a folder.
    pub(super) fn is_folder(&self) -> bool {
        self.0.is_empty() || self.0.ends_with(b"/")
    }

    /// Returns the path without a final slash.
    pub(super) fn without_slash(&self) -> &[u8] {
        self.0.strip_suffix(b"/").unwrap_or(&self.0)
    }

    /// Returns the last segment.
    pub(super) fn last(&self) -> &[u8] {
        let path = self.without_slash();
        &path[path.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1)..]
    }

    pub(super) fn into_owned(self) -> Name<'static> {
        Name(Cow::Owned(self.0.into_owned()))
    }
}

fn is_name(path: &[u8], hidden: bool) -> bool {
    let segments = path.strip_suffix(b"/").unwrap_or(path);
    // A backslash is a separator on other systems, and some clients treat it as a slash.
    let is_segment = |(number, segment): (usize, &[u8])| match segment {
        b"" | b"." | b".." => false,
        b".well-known" if number == 0 => true,
        [b'.', ..] if !hidden => false,
        segment => !segment.iter().any(|&byte| byte == b'\\' || byte == 0),
    };
    path.is_empty() || segments.split(|&byte| byte == b'/').enumerate().all(is_segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_decoded_once_and_has_one_spelling() {
        for (text, name) in [
            ("", Some("")),
            ("a", Some("a")),
            ("a/b.c", Some("a/b.c")),
            ("a/", Some("a/")),
            ("a%20b", Some("a b")),
            ("%61/%62", Some("a/b")),
            ("%2561", Some("%61")),
            ("a%2Fb", None),
            ("a//b", None),
            ("/a", None),
            ("/", None),
            ("a//", None),
            ("..", None),
            ("a/..", None),
            ("%2e%2e/a", None),
            ("%252e%252e/a", Some("%2e%2e/a")),
            ("...", None),
            (".git/config", None),
            ("a/.b", None),
            (".well-known/a", Some(".well-known/a")),
            ("%2ewell-known/", Some(".well-known/")),
            (".well-known/.a", None),
            ("a/.well-known/b", None),
            (".well-knowns/a", None),
            ("a/%2Eb", None),
            ("a%5Cb", None),
            ("a%00", None),
        ] {
            let parsed = Name::parse(text.as_bytes(), false);
            let parsed = parsed.map(|name| String::from_utf8(name.0.into_owned()).expect("text"));
            assert_eq!(parsed.as_deref(), name, "{text}");
        }
        for (text, is_name) in [(".git/config", true), ("...", true), ("..", false), (".", false)] {
            assert_eq!(Name::parse(text.as_bytes(), true).is_some(), is_name, "{text}");
        }
    }

    #[test]
    fn folders_and_last_segments() {
        for (text, is_folder, last) in [("", true, ""), ("a/", true, "a"), ("a/b", false, "b"), ("a", false, "a")] {
            let name = Name::parse(text.as_bytes(), false).expect("a name");
            assert_eq!((name.is_folder(), name.last()), (is_folder, last.as_bytes()), "{text}");
        }
    }
}
