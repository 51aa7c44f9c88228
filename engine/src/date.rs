//! The fields that every response has, rendered once a second: `Server` and `Date`.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

/// The rendered lines.
#[derive(Debug)]
pub(crate) struct CommonLines {
    server_name: Option<String>,
    seconds: u64,
    lines: Vec<u8>,
    /// Where in `lines` the date begins.
    date: usize,
    heads: [RenderedHead; HEADS],
}

/// Whole heads of plain responses that are kept until the date changes. Most applications answer with a handful of
/// statuses, media types and lengths over and over.
const HEADS: usize = 16;

/// A head, by what it depends on beside the common lines.
#[derive(Clone, Debug, Default)]
struct RenderedHead {
    key: HeadKey,
    bytes: Vec<u8>,
}

/// What tells two plain heads apart: a response with other fields of its own is not kept.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HeadKey {
    pub(crate) status: u16,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) length: usize,
}

/// Media types are the same where they are at the same place: that needs no look at their bytes, and one that is there twice is
/// only rendered once more.
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

    /// Renders them anew if another second has begun.
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
        // Written in place: what is rendered every second should not need memory every second.
        write!(self.lines, "{date}").expect("a vector takes all that is written");
        self.lines.extend_from_slice(b"\r\n");
    }

    /// A head that was kept.
    #[inline]
    pub(crate) fn head(&self, key: &HeadKey) -> Option<&[u8]> {
        let head = &self.heads[key.place()];
        (head.key == *key && !head.bytes.is_empty()).then_some(&*head.bytes)
    }

    /// Keeps a head, in place of another.
    #[cold]
    pub(crate) fn keep_head(&mut self, key: HeadKey, bytes: &[u8]) {
        let head = &mut self.heads[key.place()];
        head.key = key;
        head.bytes.clear();
        head.bytes.extend_from_slice(bytes);
    }

    /// The second that they were rendered for.
    #[inline]
    pub(crate) fn second(&self) -> u64 {
        self.seconds
    }

    /// The `Server` line with its line end; empty where there is none.
    pub(crate) fn server(&self) -> &[u8] {
        &self.lines[..self.date]
    }

    /// What the `Server` field says; `None` where there is none.
    pub(crate) fn server_value(&self) -> Option<&[u8]> {
        self.server_name.as_deref().map(str::as_bytes)
    }

    /// What the `Date` field says.
    pub(crate) fn date_value(&self) -> &[u8] {
        const NAME: usize = b"Date: ".len();
        &self.lines[self.date + NAME..self.lines.len() - b"\r\n".len()]
    }

    /// The `Date` line with its line end.
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
