//! HTTP/2 (RFC 9113) without I/O: turns received frames into events, and calls into frames to send.
//!
//! 1. Append received bytes to a window and call [`Connection::receive`] until it returns [`Event::NeedMore`]; drop the
//!    consumed bytes. Frames that the protocol requires in reply are in the output. A caller with a clock first calls
//!    [`Connection::set_second`], so that frames that arrive slowly do not count as a flood.
//! 2. Act on the events: respond to heads, and report used-up body bytes by [`Connection::used`].
//! 3. Send heads, and bodies as far as [`Connection::capacity`] allows; continue after [`Event::Opened`] or
//!    [`Event::AllOpened`]. [`Schedule`] chooses the stream that sends next.
//!
//! A CONNECT, with a protocol (RFC 8441) or without, asks for a tunnel; [`Head::upgrade`](crate::Head::upgrade) and
//! [`Head::protocol`](crate::Head::protocol) show it. A 2xx response with [`Length::Unknown`](crate::Length) makes the
//! stream a tunnel for server and client: the same calls and events then carry its bytes both ways.
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
