//! The integration tests of this crate, in one program, because each program links everything.

mod programs;

mod everything;
mod features;
mod haywire;
mod header;
mod httpserver;
mod languages;
mod shapes;
