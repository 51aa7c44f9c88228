//! Flow control: how many bytes each side may still send (RFC 9113 section 5.2).

use super::settings::{FIRST_WINDOW, LARGEST_WINDOW};

/// The number of bytes that the peer lets us send. It may become negative if the peer reduces its initial window after
/// we have sent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SendWindow(i32);

impl SendWindow {
    pub(super) const fn new(bytes: u32) -> SendWindow {
        SendWindow(bytes as i32)
    }

    /// Returns the number of bytes that may be sent.
    #[inline]
    pub(super) fn available(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.available(), "more is sent than the window allows");
        self.0 -= bytes as i32;
    }

    /// Adds `by` to the window. Returns false, without a change, if the window would leave its range.
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

/// The initial windows of the peer's streams by our SETTINGS, of which the peer may not know the last ones yet (RFC 9113 section
/// 6.9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InitialWindow {
    /// The window of the last SETTINGS that the peer has acknowledged, or the value before all SETTINGS.
    known: u32,
    /// The windows of the SETTINGS that the peer has not acknowledged, the oldest first.
    sent: [Option<u32>; 2],
}

impl InitialWindow {
    /// Creates the value for a connection whose first SETTINGS have this window.
    pub(super) const fn new(first: u32) -> InitialWindow {
        InitialWindow { known: FIRST_WINDOW, sent: [Some(first), None] }
    }

    /// Returns the window of a stream that a peer begins when it knows all our SETTINGS.
    #[inline]
    pub(super) fn last(self) -> u32 {
        self.sent[1].or(self.sent[0]).unwrap_or(self.known)
    }

    /// Returns the largest window of a stream that the peer may begin now.
    #[inline]
    pub(super) fn most(self) -> u32 {
        self.sent.into_iter().flatten().fold(self.known, u32::max)
    }

    /// Returns true if the peer has acknowledged all our SETTINGS.
    #[inline]
    pub(super) fn is_acknowledged(self) -> bool {
        self.sent[0].is_none()
    }

    /// Records that SETTINGS with a smaller window are sent. Returns false, without a change, if the window is not smaller or
    /// the peer has not acknowledged two earlier ones.
    #[must_use]
    pub(super) fn narrow(&mut self, window: u32) -> bool {
        let next = match self.sent {
            _ if window >= self.last() => return false,
            [None, _] => &mut self.sent[0],
            [_, None] => &mut self.sent[1],
            _ => return false,
        };
        *next = Some(window);
        true
    }

    /// Records an acknowledgement. Returns the number of bytes by which the windows of all streams are smaller from now on, or
    /// `None` if the peer had acknowledged all.
    pub(super) fn acknowledge(&mut self) -> Option<u32> {
        let most = self.most();
        self.known = self.sent[0]?;
        self.sent = [self.sent[1], None];
        Some(most - self.most())
    }
}

/// The window for the bytes that we let the peer send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReceiveWindow {
    /// The number of bytes that the peer may still send. It may become negative if our SETTINGS reduce the window after
    /// the peer has sent bytes (RFC 9113 section 6.9.2).
    left: i32,
    /// The number of received bytes that were used up and not yet given back to the peer.
    used: u32,
    /// The size of the whole window in bytes.
    size: u32,
    /// The number of used-up bytes that are not given back to the peer, because the window was narrowed.
    owed: u32,
    /// The most used-up bytes that wait to be given back.
    step: u32,
}

impl ReceiveWindow {
    pub(super) const fn new(size: u32) -> ReceiveWindow {
        ReceiveWindow { left: size as i32, used: 0, size, owed: 0, step: u32::MAX }
    }

    /// Makes the window give used-up bytes back when they are half of its present size, even after it was widened: what one
    /// reader does not take of a wide window must not keep the bytes of others.
    pub(super) const fn with_steady_steps(self) -> ReceiveWindow {
        ReceiveWindow { step: self.size / 2, ..self }
    }

    /// Creates the window of a stream that the peer has just begun.
    pub(super) fn of_stream(initial: InitialWindow) -> ReceiveWindow {
        ReceiveWindow { left: initial.most() as i32, ..ReceiveWindow::new(initial.last()) }
    }

    /// Takes back `bytes` that the peer could use before it knew our settings. `left` may become negative.
    pub(super) fn settings_known(&mut self, bytes: u32) {
        self.left -= bytes as i32;
    }

    /// Returns the window with `bytes` more that the peer may send, which [`settings_known`](Self::settings_known) will take back: the
    /// size stays. Returns `None` if the window would be too large until then.
    pub(super) fn compensated(self, bytes: u32) -> Option<ReceiveWindow> {
        let left = self.left.checked_add(i32::try_from(bytes).ok()?)?;
        Some(ReceiveWindow { left, ..self })
    }

    /// Widens the window by `bytes`. Returns the increment for a WINDOW_UPDATE, which is less if the window was narrowed
    /// before and the peer still has what it must not get again. Returns `None`, without a change, if the window would be
    /// too large.
    pub(super) fn widen(&mut self, bytes: u32) -> Option<u32> {
        let more = bytes.saturating_sub(self.owed);
        let left = self.left.checked_add(i32::try_from(more).ok()?)?;
        let size = self.size.checked_add(bytes).filter(|size| *size <= LARGEST_WINDOW)?;
        self.owed -= bytes - more;
        (self.size, self.left) = (size, left);
        Some(more)
    }

    /// Narrows the window by `bytes`, by which it was widened before. The peer can still use them once, but does not get
    /// them back.
    pub(super) fn narrow(&mut self, bytes: u32) {
        self.size -= bytes;
        // What was used up and not given back is simply kept.
        let kept = bytes.min(self.used);
        self.used -= kept;
        self.owed += bytes - kept;
    }

    /// Narrows the window by `bytes`, by which it was widened before. As many received bytes are never used up.
    pub(super) fn shrink(&mut self, bytes: u32) {
        self.size -= bytes;
    }

    /// Returns the size of the whole window in bytes.
    pub(super) fn size(self) -> u32 {
        self.size
    }

    /// Returns the number of bytes that the peer may still send; a negative number if our settings have reduced it.
    pub(super) fn left(self) -> i32 {
        self.left
    }

    /// Returns true if the window allows this number of bytes.
    pub(super) fn allows(&self, bytes: u32) -> bool {
        i64::from(bytes) <= i64::from(self.left) || bytes == 0
    }

    /// Counts received bytes. Returns false if the window does not allow them.
    #[must_use]
    pub(super) fn receive(&mut self, bytes: u32) -> bool {
        let fits = self.allows(bytes);
        if fits {
            self.left -= bytes as i32;
        }
        fits
    }

    /// Returns true if the peer has sent all bytes that the window allows.
    pub(super) fn is_closed(self) -> bool {
        self.left <= 0
    }

    /// Counts used-up bytes. Returns the increment for a WINDOW_UPDATE if at least half of the window is used up, or a
    /// [steady step](Self::with_steady_steps), else `None`. We thus send few updates, and a peer need not wait for one if its
    /// bytes are used up fast enough.
    pub(super) fn use_up(&mut self, bytes: u32) -> Option<u32> {
        let kept = bytes.min(self.owed);
        self.owed -= kept;
        self.used += bytes - kept;
        if self.used < (self.size / 2).min(self.step).max(1) {
            return None;
        }
        let more = core::mem::take(&mut self.used);
        self.left = self.left.saturating_add(more as i32);
        Some(more)
    }
}

/// The windows of a connection, and the initial windows of its streams. Until the peer has acknowledged our last SETTINGS, it gets no
/// used-up bytes of the connection's window back: it may still use the larger windows from before on every stream, so that the
/// connection's window bounds all streams together.
#[derive(Debug)]
pub(super) struct ConnectionWindows {
    send: SendWindow,
    receive: ReceiveWindow,
    streams: InitialWindow,
    /// The number of bytes that were used up while an acknowledgement was due.
    unknown_used: u32,
}

impl ConnectionWindows {
    /// Creates the windows: that of the connection, which is at least [`FIRST_WINDOW`], and the first one of streams.
    pub(super) const fn new(connection: u32, stream: u32) -> ConnectionWindows {
        let connection = if connection < FIRST_WINDOW { FIRST_WINDOW } else { connection };
        ConnectionWindows {
            send: SendWindow::new(FIRST_WINDOW),
            receive: ReceiveWindow::new(connection).with_steady_steps(),
            streams: InitialWindow::new(stream),
            unknown_used: 0,
        }
    }

    /// Returns the number of bytes that we may send on all streams together.
    #[inline]
    pub(super) fn available(&self) -> usize {
        self.send.available()
    }

    /// Counts bytes that we send.
    #[inline]
    pub(super) fn sent(&mut self, bytes: usize) {
        self.send.take(bytes);
    }

    /// Lets us send more. Returns false, without a change, if the window would leave its range.
    #[must_use]
    pub(super) fn opened(&mut self, bytes: u32) -> bool {
        self.send.grow(i64::from(bytes))
    }

    /// Returns the window of a stream that the peer has just begun.
    pub(super) fn of_stream(&self) -> ReceiveWindow {
        ReceiveWindow::of_stream(self.streams)
    }

    /// Returns the number of bytes that the peer may use of each stream's window until it has acknowledged our SETTINGS, and then no
    /// longer.
    pub(super) fn temporary(&self) -> u32 {
        self.streams.most() - self.streams.last()
    }

    /// Returns true if the window allows the peer to send this number of bytes.
    pub(super) fn allows(&self, bytes: u32) -> bool {
        self.receive.allows(bytes)
    }

    /// Counts received bytes. Returns false if the window does not allow them.
    #[must_use]
    pub(super) fn receive(&mut self, bytes: u32) -> bool {
        self.receive.receive(bytes)
    }

    /// Returns true if the peer may send, or may be about to.
    pub(super) fn may_receive(&self) -> bool {
        !self.streams.is_acknowledged() || !self.receive.is_closed()
    }

    /// Counts used-up bytes. Returns the increment for a WINDOW_UPDATE, if one is due.
    #[inline]
    pub(super) fn use_up(&mut self, bytes: u32) -> Option<u32> {
        if !self.streams.is_acknowledged() {
            self.unknown_used += bytes;
            return None;
        }
        if bytes > 0 { self.receive.use_up(bytes) } else { None }
    }

    /// Narrows the initial window of streams. Returns the number of bytes by which it is smaller, or `None`, without a change, if it is
    /// not, or the peer has not acknowledged two earlier SETTINGS.
    pub(super) fn narrow_streams(&mut self, size: u32) -> Option<u32> {
        let before = self.streams.last();
        self.streams.narrow(size).then(|| before - size)
    }

    /// Records an acknowledgement of our SETTINGS. Returns the number of bytes by which the windows of all streams are smaller, and the
    /// increment for a WINDOW_UPDATE, if one is due. Returns `None` if the peer had acknowledged all.
    pub(super) fn acknowledge(&mut self) -> Option<(u32, Option<u32>)> {
        let less = self.streams.acknowledge()?;
        let used = core::mem::take(&mut self.unknown_used);
        Some((less, self.use_up(used)))
    }

    /// Widens the connection's window; see [`ReceiveWindow::widen`].
    pub(super) fn widen(&mut self, bytes: u32) -> Option<u32> {
        self.receive.widen(bytes)
    }

    /// Narrows the connection's window; see [`ReceiveWindow::narrow`].
    pub(super) fn narrow(&mut self, bytes: u32) {
        self.receive.narrow(bytes);
    }

    /// Narrows the connection's window; see [`ReceiveWindow::shrink`].
    pub(super) fn shrink(&mut self, bytes: u32) {
        self.receive.shrink(bytes);
    }

    /// Returns the size of the connection's window.
    pub(super) fn size(&self) -> u32 {
        self.receive.size()
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
        let mut initial = InitialWindow::new(16_384);
        let mut window = ReceiveWindow::of_stream(initial);
        assert!(window.receive(60_000));
        assert_eq!(initial.acknowledge(), Some(49_151));
        window.settings_known(49_151);
        assert!(window.is_closed() && !window.receive(1) && window.receive(0));
        // 65,535 - 60,000 - 49,151 + 60,000 = 16,384, which is the whole window, because all sent bytes are used up.
        assert_eq!(window.use_up(60_000), Some(60_000));
        assert!(window.receive(16_384) && !window.receive(1));
        assert!(window.widen(10) == Some(10) && window.receive(10) && !window.receive(1));
        assert_eq!(window.widen(LARGEST_WINDOW), None);
    }

    #[test]
    fn the_initial_window_is_the_largest_that_the_peer_may_know() {
        let mut initial = InitialWindow::new(65_536);
        assert_eq!((initial.last(), initial.most(), initial.is_acknowledged()), (65_536, 65_536, false));
        assert!(initial.narrow(4_096) && !initial.narrow(4_096), "only a smaller one is announced");
        assert_eq!((initial.last(), initial.most()), (4_096, 65_536));
        assert!(!initial.narrow(1), "at most two SETTINGS wait for their acknowledgements");
        assert_eq!((initial.acknowledge(), initial.most(), initial.is_acknowledged()), (Some(0), 65_536, false));
        assert_eq!((initial.acknowledge(), initial.most(), initial.is_acknowledged()), (Some(61_440), 4_096, true));
        assert_eq!(initial.acknowledge(), None);
        assert!(initial.narrow(10));
        assert_eq!((initial.acknowledge(), initial.last()), (Some(4_086), 10));
        // A small one from the start is not known to a peer that has not acknowledged it.
        let mut initial = InitialWindow::new(1_000);
        assert_eq!((initial.last(), initial.most()), (1_000, 65_535));
        assert!(initial.narrow(100));
        assert_eq!((initial.acknowledge(), initial.acknowledge()), (Some(64_535), Some(900)));
    }

    #[test]
    fn a_compensated_window_is_as_before_when_the_peer_knows_the_smaller_one() {
        let mut initial = InitialWindow::new(65_536);
        let mut window = ReceiveWindow::of_stream(initial);
        assert!(initial.narrow(4_096) && window.receive(60_000));
        window = window.compensated(61_440).expect("a small window");
        while let Some(less) = initial.acknowledge() {
            window.settings_known(less);
        }
        assert_eq!((window.left(), window.size()), (5_536, 65_536));
        assert_eq!(window.compensated(LARGEST_WINDOW), None);
    }

    #[test]
    fn a_narrowed_window_gives_back_less_until_the_peer_has_used_what_it_was_wider() {
        let mut window = ReceiveWindow::new(100);
        assert_eq!(window.widen(200), Some(200));
        assert!(window.receive(250));
        // 40 bytes are used up and not given back; the other 160 are owed.
        assert_eq!(window.use_up(40), None);
        window.narrow(200);
        assert_eq!((window.size(), window.left()), (100, 50));
        assert_eq!(window.use_up(160), None);
        assert_eq!(window.use_up(50), Some(50));
        assert_eq!((window.size(), window.left()), (100, 100), "all bytes that were sent are used up");
        // Widened again before the peer has used what it had, it gets nothing new.
        assert_eq!(window.widen(200), Some(200));
        window.narrow(200);
        assert_eq!((window.left(), window.widen(150)), (300, Some(0)));
        assert_eq!(window.widen(100), Some(50));
        assert_eq!((window.size(), window.left()), (350, 350));
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
