//! The values of a program that are passed to its callbacks.

use std::ffi::c_void;

/// A value of the program that is passed to its callbacks.
#[derive(Clone, Copy)]
pub(crate) struct Data(pub(crate) *mut c_void);

// SAFETY: the library never uses the pointer, and passes it to the program's callbacks on any thread, as documented.
unsafe impl Send for Data {}
// SAFETY: as above.
unsafe impl Sync for Data {}
