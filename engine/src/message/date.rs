//! The header fields `Server` and `Date`, rendered at most once per second, and heads of plain responses that contain
//! them.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The rendered lines, and the heads of responses that contain them.
#[derive(Debug)]
pub(crate) struct CommonLines {
    server_name: Option<String>,
    seconds: u64,
    lines: Vec<u8>,
    /// The offset of the date in `lines`.
    date: usize,
    heads: [RenderedHead; HEADS],
}

/// The most heads of plain responses that are kept until the date changes. Most applications use a handful of statuses,
/// media types and lengths again and again.
const HEADS: usize = 16;

/// A kept head with its key.
#[derive(Clone, Debug, Default)]
struct RenderedHead {
    key: HeadKey,
    bytes: Vec<u8>,
}

/// The key of the head of a plain response. The head of a response with other header fields is not kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadKey {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) length: usize,
}

/// Media types are compared by address, which is faster than by bytes. Two copies of a media type at different
/// addresses count as different.
impl PartialEq for HeadKey {
    #[inline]
    fn eq(&self, other: &HeadKey) -> bool {
        let place = |key: &HeadKey| key.content_type.map(|text| (text.as_ptr(), text.len()));
        (self.status, self.length) == (other.status, other.length) && place(self) == place(other)
    }
}

impl HeadKey {
    #[inline]
    fn place(&self) -> usize {
        (self.length ^ self.length >> 4 ^ self.status as usize) % HEADS
    }
}

impl CommonLines {
    pub(crate) fn new(server_name: Option<String>) -> CommonLines {
        let mut lines =
            CommonLines { server_name, seconds: u64::MAX, lines: Vec::new(), date: 0, heads: Default::default() };
        lines.refresh(0);
        lines
    }

    /// Renders the lines again if another second has begun.
    pub(crate) fn refresh(&mut self, unix_seconds: u64) {
        if unix_seconds == self.seconds {
            return;
        }
        self.seconds = unix_seconds;
        self.heads.iter_mut().for_each(|head| head.bytes.clear());
        self.lines.clear();
        if let Some(name) = &self.server_name {
            self.lines.extend_from_slice(b"Server: ");
            self.lines.extend_from_slice(name.as_bytes());
            self.lines.extend_from_slice(b"\r\n");
        }
        self.date = self.lines.len();
        self.lines.extend_from_slice(b"Date: ");
        let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(unix_seconds));
        // The date is written in place, so that no memory is allocated for it every second.
        write!(self.lines, "{date}").expect("writing to a Vec cannot fail");
        self.lines.extend_from_slice(b"\r\n");
    }

    /// Returns the kept head with this key, if there is one.
    #[inline]
    pub(crate) fn head(&self, key: &HeadKey) -> Option<&[u8]> {
        let head = &self.heads[key.place()];
        (head.key == *key && !head.bytes.is_empty()).then_some(&*head.bytes)
    }

    /// Keeps a head, in place of an older head in the same slot.
    #[cold]
    pub(crate) fn keep_head(&mut self, key: HeadKey, bytes: &[u8]) {
        let head = &mut self.heads[key.place()];
        head.key = key;
        head.bytes.clear();
        head.bytes.extend_from_slice(bytes);
    }

    /// Returns the time for which the lines are rendered, in seconds since 1970.
    #[inline]
    pub(crate) fn second(&self) -> u64 {
        self.seconds
    }

    /// Returns the `Server` line with its line end, or no bytes if the field is turned off.
    pub(crate) fn server(&self) -> &[u8] {
        &self.lines[..self.date]
    }

    /// Returns the value of `Server`, or `None` if the field is turned off.
    pub(crate) fn server_value(&self) -> Option<&[u8]> {
        self.server_name.as_deref().map(str::as_bytes)
    }

    /// Returns the value of `Date`.
    pub(crate) fn date_value(&self) -> &[u8] {
        const NAME: usize = b"Date: ".len();
        &self.lines[self.date + NAME..self.lines.len() - b"\r\n".len()]
    }

    /// Returns the `Date` line with its line end.
    pub(crate) fn date(&self) -> &[u8] {
        &self.lines[self.date..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut lines = CommonLines::new(Some("x".to_string()));
        lines.refresh(1_800_000_000);
        assert_eq!(lines.server(), b"Server: x\r\n");
        assert_eq!(lines.date(), b"Date: Fri, 15 Jan 2027 08:00:00 GMT\r\n");
        let mut lines = CommonLines::new(None);
        lines.refresh(0);
        assert_eq!(lines.server(), b"");
        assert_eq!(lines.date(), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
    }
}
