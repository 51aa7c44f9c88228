//! Handlers of WebSocket connections.

use super::{WebSocket, WebSocketUpgrade};
use crate::handler::{Handler, Plain};
use crate::{FromRequest, Response};
use std::future::Future;
use std::sync::Arc;

/// An async function that [`App::ws`](crate::App::ws) takes: its first argument is the [`WebSocket`], and up to seven
/// extractors may follow. `A` only distinguishes the implementations of this trait.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of WebSocket connections",
    note = "it is an async function whose first argument is a `WebSocket`, whose other arguments are extractors (`FromRequest`), and which returns nothing"
)]
pub trait WebSocketHandler<A>: Send + Sync + 'static {
    /// The `M` of the [`Handler`] that [`into_handler`](Self::into_handler) returns.
    #[doc(hidden)]
    type Marker;

    /// Returns a handler that accepts each request to open a WebSocket with the default settings.
    #[doc(hidden)]
    fn into_handler(self) -> impl Handler<Self::Marker>;
}

macro_rules! handlers {
    ($($argument:ident)*) => {
        impl<F, Fut, $($argument),*> WebSocketHandler<($($argument,)*)> for F
        where
            F: Fn(WebSocket, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = ()> + 'static,
            $($argument: FromRequest + 'static,)*
        {
            type Marker = Plain<(WebSocketUpgrade, $($argument,)*)>;

            #[allow(non_snake_case, reason = "the arguments are named as their types")]
            fn into_handler(self) -> impl Handler<Self::Marker> {
                let handler = Arc::new(self);
                move |upgrade: WebSocketUpgrade, $($argument: $argument),*| -> Response {
                    let handler = handler.clone();
                    upgrade.on_upgrade(move |socket| handler(socket, $($argument),*))
                }
            }
        }
    };
}

handlers!();
handlers!(A1);
handlers!(A1 A2);
handlers!(A1 A2 A3);
handlers!(A1 A2 A3 A4);
handlers!(A1 A2 A3 A4 A5);
handlers!(A1 A2 A3 A4 A5 A6);
handlers!(A1 A2 A3 A4 A5 A6 A7);
