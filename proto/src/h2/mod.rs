//! HTTP/2 (RFC 9113) without I/O: turns received frames into events, and turns method calls into frames to send.
//!
//! 1. Append received bytes to a window and call [`Connection::receive`] until it returns [`Event::NeedMore`]; drop the
//!    consumed bytes. `receive` appends the frames that the protocol requires in reply to the output. A caller with a
//!    clock first calls [`Connection::set_second`], so that frames that arrive slowly do not count as a flood.
//! 2. Act on the events: respond to heads, and report used-up body bytes by [`Connection::used`].
//! 3. Send heads, and bodies as far as [`Connection::capacity`] allows; continue after [`Event::Opened`] or
//!    [`Event::AllOpened`]. [`Schedule`] chooses the stream that sends next.
//!
//! A CONNECT, with a protocol (RFC 8441) or without, asks for a tunnel. [`Head::upgrade`](crate::Head::upgrade) is then
//! true, and [`Head::protocol`](crate::Head::protocol) is the protocol. A 2xx response to a CONNECT makes the stream a
//! tunnel for server and client; a server sends it with [`Length::Unknown`](crate::Length). The same calls and events
//! then carry the tunnel's bytes both ways.
//!
//! The limits are [`Bounds`], [`budget::ALLOWANCES`] and [`Limits`](crate::Limits).

pub mod budget;
mod connection;
mod control;
mod data;
mod fields;
mod flow;
mod frame;
mod schedule;
mod section;
mod send;
mod settings;
pub mod state;
mod streams;

pub use connection::{Away, Bounds, Connection, Event, Failure, Lent, Received};
pub use frame::{Code, FRAME_BYTES, PREFACE};
pub use schedule::{Priority, Schedule};
pub use send::{FieldWriter, Request};
pub use streams::StreamRef;
