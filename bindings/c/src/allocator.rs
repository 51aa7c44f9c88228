//! The allocator of the library: that of the system, or functions of the program.

use crate::result::{HIGHWIRE_NULL, HIGHWIRE_WRONG_STATE, highwire_result};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Functions that allocate memory. Several threads may call them at the same time. Alignments are powers of two. On
/// failure, a function returns NULL; the library may then abort the process. The functions must not call the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct highwire_allocator {
    /// Returns memory of this size, which is not 0, and this alignment.
    pub allocate: Option<unsafe extern "C" fn(size: usize, alignment: usize, data: *mut c_void) -> *mut c_void>,
    /// Changes the size of memory, and may move it. NULL: the library allocates, copies and frees.
    pub resize: Option<
        unsafe extern "C" fn(
            memory: *mut c_void,
            old_size: usize,
            new_size: usize,
            alignment: usize,
            data: *mut c_void,
        ) -> *mut c_void,
    >,
    /// Frees memory. `size` and `alignment` are those of its allocation.
    pub release: Option<unsafe extern "C" fn(memory: *mut c_void, size: usize, alignment: usize, data: *mut c_void)>,
    /// Passed to each function.
    pub data: *mut c_void,
}

/// The program's functions. Only `resize` may be NULL.
struct Given(highwire_allocator);

// SAFETY: the library only passes the pointer to the program's functions, which any thread may call, as documented.
unsafe impl Send for Given {}
// SAFETY: as above.
unsafe impl Sync for Given {}

static GIVEN: OnceLock<Given> = OnceLock::new();

/// True after the first allocation by the system's allocator. It must also free that memory, so the functions cannot
/// change afterwards.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// The allocator of all Rust code in the library.
struct Chosen;

#[global_allocator]
static CHOSEN: Chosen = Chosen;

/// Returns the program's functions, or `None` for the system's.
#[inline]
fn given() -> Option<&'static highwire_allocator> {
    if let Some(given) = GIVEN.get() {
        return Some(&given.0);
    }
    if !IS_USED.load(Ordering::Relaxed) {
        IS_USED.store(true, Ordering::Relaxed);
    }
    None
}

// SAFETY: each function does what `System` does, or what the program's functions promise, for the same layout. The functions
// never change after the first allocation.
unsafe impl GlobalAlloc for Chosen {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(given) = given() else {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        };
        match given.allocate {
            // SAFETY: the program has given the function as one of this type.
            Some(allocate) => unsafe { allocate(layout.size(), layout.align(), given.data) }.cast(),
            None => ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if given().is_none() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises.
        let memory = unsafe { self.alloc(layout) };
        if !memory.is_null() {
            // SAFETY: the memory was just allocated with this size.
            unsafe { memory.write_bytes(0, layout.size()) };
        }
        memory
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(given) = given() else {
            // SAFETY: as the caller promises.
            return unsafe { System.dealloc(memory, layout) };
        };
        if let Some(release) = given.release {
            // SAFETY: the program has given the function as one of this type, and has allocated the memory.
            unsafe { release(memory.cast(), layout.size(), layout.align(), given.data) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        let Some(given) = given() else {
            // SAFETY: as the caller promises.
            return unsafe { System.realloc(memory, layout, new_size) };
        };
        if let Some(resize) = given.resize {
            // SAFETY: the program has given the function as one of this type, and has allocated the memory.
            return unsafe { resize(memory.cast(), layout.size(), new_size, layout.align(), given.data) }.cast();
        }
        // SAFETY: the caller promises a size that does not overflow when rounded up to the alignment.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(new_size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both have at least as many bytes, and the new memory is not part of the old one.
            unsafe {
                ptr::copy_nonoverlapping(memory, new, layout.size().min(new_size));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}

/// Makes the library allocate its memory with functions of the program. Call it before any other function of the
/// library, and while no other thread calls one; later it returns `HIGHWIRE_WRONG_STATE`. The library copies the
/// structure. The kernel's memory for io_uring, and that of the C code for TLS and compression, does not come from
/// these functions.
///
/// # Safety
/// `allocator` must be NULL or point to an allocator whose functions do what is documented.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_set_allocator(allocator: *const highwire_allocator) -> highwire_result {
    // SAFETY: as the caller promises.
    let Some(allocator) = (unsafe { allocator.as_ref() }) else { return HIGHWIRE_NULL };
    if allocator.allocate.is_none() || allocator.release.is_none() {
        return HIGHWIRE_NULL;
    }
    if IS_USED.load(Ordering::Relaxed) || GIVEN.set(Given(*allocator)).is_err() {
        return HIGHWIRE_WRONG_STATE;
    }
    highwire_result::HIGHWIRE_OK
}
