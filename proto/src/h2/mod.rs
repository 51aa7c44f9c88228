//! HTTP/2 (RFC 9113), without I/O: frames in either direction turned into events and bytes.
//!
//! 1. Append what was received to a window and call [`Connection::receive`] until it says [`Event::NeedMore`]; drop what was
//!    consumed. What it has to answer by itself is in the output. A caller with a clock says before which second it is
//!    ([`Connection::set_second`]): what comes slowly is no flood.
//! 2. Act on the events: answer heads, use up bodies ([`Connection::used`]).
//! 3. Send heads and bodies, as far as [`Connection::capacity`] goes; go on when [`Event::Opened`] or [`Event::AllOpened`]
//!    says so. [`Schedule`] knows who goes first.
//!
//! A CONNECT, with a protocol (RFC 8441) or without, asks for a tunnel; [`Head::upgrade`](crate::Head::upgrade) and
//! [`Head::protocol`](crate::Head::protocol) say so. A server that answers it with 2xx and [`Length::Unknown`](crate::Length)
//! has a tunnel, and so has the client that gets this answer: the same calls and events carry its bytes both ways.
//!
//! Every bound is in [`Bounds`], in [`budget::ALLOWANCES`] and in [`Limits`](crate::Limits).

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
