//! WebSocket (RFC 6455) over HTTP/1 and HTTP/2.
//!
//! [`App::ws`](crate::App::ws) registers a handler of connections, and the extractor [`WebSocketUpgrade`] accepts them
//! with other settings. A handler gets a [`WebSocket`], which receives and sends [`Message`]s.
//!
//! ```
//! use highwire::App;
//! use highwire::ws::{Message, WebSocket};
//!
//! let app = App::new().ws("/shout", async |mut socket: WebSocket| {
//!     while let Some(Ok(message)) = socket.recv().await {
//!         if let Message::Text(text) = message
//!             && socket.send(text.to_uppercase()).await.is_err()
//!         {
//!             return;
//!         }
//!     }
//! });
//! # let _ = app;
//! ```

#[cfg(feature = "client")]
mod client;
mod deflate;
pub(crate) mod frame;
mod handler;
mod large;
mod message;
mod receiver;
mod socket;
mod together;
mod upgrade;

#[cfg(feature = "client")]
pub use client::{Connect, ConnectError, connect};
pub use deflate::Deflate;
#[cfg(feature = "testing")]
pub(crate) use deflate::check_inflate;
pub use handler::WebSocketHandler;
pub use highwire_proto::ws::{code, is_close_code};
pub use message::{CloseFrame, Error, Failure, Kind, Message, Misuse, Part, Utf8Bytes};
pub use receiver::WebSocketReceiver;
pub use socket::{WebSocket, WebSocketSender};
pub use upgrade::WebSocketUpgrade;
