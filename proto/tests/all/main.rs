//! The integration tests of this crate, in one program, because each program links everything.

mod oracle;
mod wire;

mod exchanges;

mod hpack {
    mod blocks;
    mod stories;
}

mod http2 {
    mod attacks;
    mod errors;
    mod exchanges;
    mod h2_crate;
    mod narrowing;
    mod tunnels;
}
