//! Flow control: how many bytes each side may still send (RFC 9113 section 5.2).

use super::settings::{FIRST_WINDOW, LARGEST_WINDOW};

/// A window that the peer lets us send into. It may be negative, after the peer has reduced its initial window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWindow(i32);

impl SendWindow {
    pub(super) const fn new(bytes: u32) -> SendWindow {
        SendWindow(bytes as i32)
    }

    /// Bytes that may be sent.
    #[inline]
    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available(), "more is sent than the window allows");
        self.0 -= bytes as i32;
    }

    /// The peer allows more: whether the window stays in its bounds.
    #[must_use]
    pub(super) fn grow(&mut self, by: i64) -> bool {
        match i32::try_from(i64::from(self.0) + by) {
            Ok(window) if i64::from(window) <= i64::from(LARGEST_WINDOW) => {
                self.0 = window;
                true
            }
            _ => false,
        }
    }
}

/// A window that we let the peer send into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    /// Bytes that the peer may still send.
    left: u32,
    /// Bytes that came and were used up, and that the peer has not been told of.
    used: u32,
    /// What it is kept at.
    size: u32,
}

impl ReceiveWindow {
    pub(super) const fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { left: size, used: 0, size }
    }

    /// One whose peer may not know its size yet (RFC 9113 section 6.9.2).
    pub(super) const fn before_settings(size: u32) -> ReceiveWindow {
        let left = if size < FIRST_WINDOW { FIRST_WINDOW } else { size };
        ReceiveWindow { left, used: 0, size }
    }

    /// Bytes came: whether they were allowed.
    #[must_use]
    pub(super) fn receive(&mut self, bytes: u32) -> bool {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }

    /// Whether the peer has sent all that it may.
    pub(super) fn is_closed(self) -> bool {
        self.left == 0
    }

    /// Bytes were used up: by how much the peer is now told that the window grows. Not for each byte, but when half of it is
    /// used, so that few updates are sent and the peer never waits for one that reads fast enough.
    pub(super) fn use_up(&mut self, bytes: u32) -> Option<u32> {
        self.used += bytes;
        if self.used < (self.size / 2).max(1) {
            return None;
        }
        let more = core::mem::take(&mut self.used);
        self.left += more;
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_window_may_be_negative_and_not_too_large() {
        let mut window = SendWindow::new(100);
        window.take(60);
        assert_eq!(window.available(), 40);
        assert!(window.grow(-100));
        assert_eq!(window.available(), 0);
        assert!(window.grow(70));
        assert_eq!(window.available(), 10);
        assert!(!window.grow(i64::from(LARGEST_WINDOW)));
        assert!(window.grow(i64::from(LARGEST_WINDOW) - 10));
    }

    #[test]
    fn a_receive_window_is_given_back_by_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(100));
        assert!(!window.receive(1));
        assert_eq!(window.use_up(49), None);
        assert_eq!(window.use_up(1), Some(50));
        assert!(window.receive(50));
        assert!(!window.receive(1));
    }
}
