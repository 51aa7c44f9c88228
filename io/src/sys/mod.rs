//! The parts that differ between operating systems, under the same names on each.
//!
//! | module | Linux | macOS, FreeBSD | Windows |
//! |---|---|---|---|
//! | `socket` | `linux`, over `unix` | `bsd`, over `unix` | `windows` |
//! | `listen`, `signal`, `poll`, `watch` | `unix` | `unix` | `windows` |
//! | `memory` | `linux`, over `unix` | `bsd`, over `unix` | `windows` |
//! | `wake` | `linux` (eventfd) | `bsd` (pipe) | `windows` (UDP socket) |
//! | `file` | `linux` (openat2) | `portable` (cap-std) | `portable` |
//! | `affinity`, `embed`, `uring` | `linux` (the ring: `crate::uring`) | `portable`: unavailable | `portable`: unavailable |
//!
//! On Linux, the tests run the code for Linux and `portable::file`. The rest of the code for the other systems is only
//! type-checked, by `cargo xtask portability`, and has never run.

#[cfg(all(unix, not(target_os = "linux")))]
mod bsd;
#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(any(test, not(target_os = "linux")))]
pub(crate) mod portable;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use bsd::{memory, socket, wake};
#[cfg(target_os = "linux")]
pub(crate) use linux::{affinity, embed, file, memory, socket, wake};
#[cfg(not(target_os = "linux"))]
pub(crate) use portable::{affinity, embed, file, uring};
#[cfg(unix)]
pub(crate) use unix::{listen, poll, signal, watch};
#[cfg(windows)]
pub(crate) use windows::{listen, memory, poll, signal, socket, wake, watch};

/// A handle on which a foreign loop can wait: a descriptor (unix) or a socket (Windows).
#[cfg(unix)]
pub type Waitable = std::os::fd::RawFd;
/// A handle on which a foreign loop can wait: a descriptor (unix) or a socket (Windows).
#[cfg(windows)]
pub type Waitable = std::os::windows::io::RawSocket;

/// The system's handle of an open file.
#[cfg(unix)]
pub type FileHandle<'a> = std::os::fd::BorrowedFd<'a>;
/// The system's handle of an open file.
#[cfg(windows)]
pub type FileHandle<'a> = std::os::windows::io::BorrowedHandle<'a>;
