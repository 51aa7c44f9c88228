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
    /// Bytes that the peer may still send; negative after its window was reduced by our SETTINGS (RFC 9113 section 6.9.2).
    left: i32,
    /// Bytes that came and were used up, and that the peer has not been told of.
    used: u32,
    /// What it is kept at.
    size: u32,
}

impl ReceiveWindow {
    pub(super) const fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { left: size as i32, used: 0, size }
    }

    /// One whose peer may not know its size yet (RFC 9113 section 6.9.2).
    pub(super) const fn before_settings(size: u32) -> ReceiveWindow {
        let left = if size < FIRST_WINDOW { FIRST_WINDOW } else { size };
        ReceiveWindow { left: left as i32, used: 0, size }
    }

    /// The peer of a stream that began before it knew our settings, whose window was `size` by them, knows them now.
    pub(super) fn settings_known(&mut self, size: u32) {
        self.left -= FIRST_WINDOW.saturating_sub(size) as i32;
    }

    /// The peer may send more at a time from now on: whether that is within the largest window.
    pub(super) fn widen(&mut self, bytes: u32) -> bool {
        let fits = self.size.saturating_add(bytes) <= LARGEST_WINDOW && self.left.checked_add(bytes as i32).is_some();
        if fits {
            self.size += bytes;
            self.left += bytes as i32;
        }
        fits
    }

    /// Bytes came: whether they were allowed.
    #[must_use]
    pub(super) fn receive(&mut self, bytes: u32) -> bool {
        let fits = i64::from(bytes) <= i64::from(self.left) || bytes == 0;
        if fits {
            self.left -= bytes as i32;
        }
        fits
    }

    /// Whether the peer has sent all that it may.
    pub(super) fn is_closed(self) -> bool {
        self.left <= 0
    }

    /// Bytes were used up: by how much the peer is now told that the window grows. Not for each byte, but when half of it is
    /// used, so that few updates are sent and the peer never waits for one that reads fast enough.
    pub(super) fn use_up(&mut self, bytes: u32) -> Option<u32> {
        self.used += bytes;
        if self.used < (self.size / 2).max(1) {
            return None;
        }
        let more = core::mem::take(&mut self.used);
        self.left = self.left.saturating_add(more as i32);
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
    fn a_window_that_settings_reduce_may_be_negative_until_it_is_given_back() {
        let mut window = ReceiveWindow::before_settings(16_384);
        assert!(window.receive(60_000));
        window.settings_known(16_384);
        assert!(window.is_closed() && !window.receive(1) && window.receive(0));
        // 65,535 - 60,000 - 49,151 + 60,000: what any stream has that used up all it has sent.
        assert_eq!(window.use_up(60_000), Some(60_000));
        assert!(window.receive(16_384) && !window.receive(1));
        assert!(window.widen(10) && window.receive(10) && !window.receive(1));
        assert!(!window.widen(LARGEST_WINDOW));
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
