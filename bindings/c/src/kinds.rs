//! The types of handles with their numbers, which are part of the ABI.

use crate::app::highwire_app;
use crate::calls::highwire_call;
use crate::client::highwire_client;
use crate::embed::highwire_loop;
use crate::handles::Handle;
use crate::replies::highwire_reply;
use crate::request::highwire_request;
use crate::response::highwire_response;
use crate::server::highwire_server;
use crate::stream::highwire_stream;
use crate::tls::highwire_tls;
use crate::topics::highwire_topics;
use crate::websocket::highwire_websocket;

macro_rules! handles {
    ($($kind:literal $name:literal $type:path;)*) => {$(
        impl Handle for $type {
            const KIND: u8 = $kind;
            const NAME: &str = $name;
            fn of(id: u64) -> Self {
                Self { id }
            }
            fn id(self) -> u64 {
                self.id
            }
        }
    )*};
}

handles! {
    1 "app" highwire_app;
    2 "server" highwire_server;
    3 "response" highwire_response;
    4 "stream" highwire_stream;
    5 "loop" highwire_loop;
    6 "request" highwire_request;
    7 "websocket" highwire_websocket;
    8 "set of topics" highwire_topics;
    9 "client" highwire_client;
    10 "call" highwire_call;
    11 "reply" highwire_reply;
    12 "set of TLS settings" highwire_tls;
}
