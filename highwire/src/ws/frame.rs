//! Frames that several connections send.

use super::Message;
use super::deflate::{LEVEL, deflate_alone};
use bytes::Bytes;
use highwire_proto::ws::deflate::WINDOW_BITS_MOST;
use highwire_proto::ws::{header_bytes, write_frame_header};

/// Returns the frame of a text or binary message.
pub(crate) fn plain(message: &Message) -> Bytes {
    let Some((kind, bytes)) = message.as_data() else { return Bytes::new() };
    let mut frame = Vec::with_capacity(header_bytes(bytes.len(), false) + bytes.len());
    write_frame_header(kind, false, bytes.len(), &mut frame);
    frame.extend_from_slice(bytes);
    frame.into()
}

/// Returns the frame of a message, deflated without context takeover and with the largest window, or `None` if that
/// does not make it shorter.
pub(crate) fn deflated(message: &Message) -> Option<Bytes> {
    let (kind, bytes) = message.as_data()?;
    if bytes.is_empty() {
        return None;
    }
    let deflated = deflate_alone(bytes, LEVEL, WINDOW_BITS_MOST);
    if deflated.len() >= bytes.len() {
        return None;
    }
    let mut frame = Vec::with_capacity(header_bytes(deflated.len(), false) + deflated.len());
    write_frame_header(kind, true, deflated.len(), &mut frame);
    frame.extend_from_slice(&deflated);
    Some(frame.into())
}
