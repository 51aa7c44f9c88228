//! The integration tests of this crate, in one program, because each program links everything.

mod demo;
mod hello;
mod programs;
mod site;

#[cfg(unix)]
mod ambiguous;
#[cfg(unix)]
mod bench;
#[cfg(unix)]
mod browser;
#[cfg(unix)]
mod clients;
mod faults;
#[cfg(unix)]
mod files;
#[cfg(target_os = "linux")]
mod greedy;
#[cfg(unix)]
mod http2;
#[cfg(unix)]
mod log;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod servers;
#[cfg(unix)]
mod uploads;

mod chat {
    #[cfg(unix)]
    mod browser;
    #[cfg(unix)]
    mod requests;
}

mod tls {
    #[cfg(unix)]
    mod clients;
    #[cfg(unix)]
    mod offers;
    #[cfg(unix)]
    mod process;
}
