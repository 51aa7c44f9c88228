//! The ASGI 3 interface.

pub(crate) mod answer;
pub(crate) mod awaitable;
mod body_parts;
pub(crate) mod channel;
pub(crate) mod convert;
pub(crate) mod exchange;
pub(crate) mod file_part;
mod hints;
pub(crate) mod received;
pub(crate) mod scope;
pub(crate) mod service;
pub(crate) mod shared;
mod tls;
pub(crate) mod websocket;
pub(crate) mod words;
