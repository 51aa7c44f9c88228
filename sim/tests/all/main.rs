//! The integration tests of this crate, in one program, because each program links everything.

mod peer;
mod play;

mod deadlines;
mod decoded_bodies;
mod departures;
mod ends;
mod file_parts;
mod handshakes;
mod outages;
mod slow_readers;
mod tunnels;
mod websockets;

mod behaviour {
    mod client;
    mod http1;
    mod http2;
    mod web;
}

mod http2 {
    mod attacks;
    mod bodies;
    mod distance;
    mod fairness;
    mod requests;
    mod shutdown;
    mod tunnels;
    mod turns;
    mod uploads;
}

mod topics {
    mod messages;
    mod workers;
}
