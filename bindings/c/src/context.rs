//! The value that a program keeps for a request.

use crate::data::Data;
use highwire::Request;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// The value of the program for a request, which lives as long as the request and its hooks.
#[derive(Clone)]
pub(crate) struct Context(Arc<Mutex<Value>>);

pub(crate) struct Value {
    pub(crate) data: Data,
    pub(crate) release: Option<unsafe extern "C" fn(value: *mut c_void)>,
}

impl Drop for Value {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
            unsafe { release(self.data.0) };
        }
    }
}

impl Context {
    pub(crate) fn new() -> Context {
        Context(Arc::new(Mutex::new(Value { data: Data(ptr::null_mut()), release: None })))
    }

    pub(crate) fn of(request: &mut Request<'_>) -> Option<Context> {
        request.extensions().get::<Context>().cloned()
    }

    pub(crate) fn of_or_new(request: &mut Request<'_>) -> Context {
        request.extensions().get_or_insert_with(Context::new).clone()
    }

    pub(crate) fn set(&self, value: Value) {
        let old = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), value);
        // This calls the program, so the lock must be free.
        drop(old);
    }

    pub(crate) fn get(&self) -> *mut c_void {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).data.0
    }
}
