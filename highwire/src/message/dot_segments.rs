//! The segments `.` and `..` of paths.

/// Returns true if a path may have a segment `.` or `..`. A percent-encoded path (`encoded`) always may.
#[inline]
pub(crate) fn has_dot_segment(path: &[u8], encoded: bool) -> bool {
    encoded || path.windows(2).any(|pair| pair == b"/.")
}

/// Returns the number of dots if a segment is `.` or `..`, each dot plain or encoded; otherwise 0.
fn dots(segment: &[u8]) -> u8 {
    let mut rest = segment;
    let mut count = 0;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return 0,
        };
        count += 1;
    }
    if count <= 2 { count } else { 0 }
}

/// Resolves dot segments (RFC 3986 section 5.2.4). Unlike the RFC, returns false if a path climbs above the root.
pub(crate) fn resolve_dot_segments(path: &[u8], resolved: &mut Vec<u8>) -> bool {
    let mut segments = path.split(|&byte| byte == b'/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        match dots(segment) {
            0 => {
                resolved.push(b'/');
                resolved.extend_from_slice(segment);
            }
            1 if last => resolved.push(b'/'),
            1 => {}
            _ => {
                let Some(parent) = resolved.iter().rposition(|&byte| byte == b'/') else { return false };
                resolved.truncate(parent);
                if last {
                    resolved.push(b'/');
                }
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_resolved_and_may_not_climb_out() {
        for (path, expected) in [
            ("/a/./b", Some("/a/b")),
            ("/a/../b", Some("/b")),
            ("/a/..", Some("/")),
            ("/a/.", Some("/a/")),
            ("/a/%2e%2E/b", Some("/b")),
            ("/.a/..b", Some("/.a/..b")),
            ("/a/.../b", Some("/a/.../b")),
            ("/..", None),
            ("/a/../../b", None),
            ("/%2e%2e/x", None),
            ("/a//../b", Some("/a/b")),
        ] {
            let mut resolved = Vec::new();
            let stayed = resolve_dot_segments(path.as_bytes(), &mut resolved);
            let got = stayed.then(|| String::from_utf8_lossy(&resolved).into_owned());
            assert_eq!(got.as_deref(), expected, "{path}");
        }
    }
}
