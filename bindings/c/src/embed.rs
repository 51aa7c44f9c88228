//! A server that the program's own event loop drives: one descriptor to poll, and a function that runs a turn.

use crate::handles::kind_bits;
use crate::result::{
    Failed, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_INVALID_HANDLE, HIGHWIRE_WRONG_THREAD, engine, failed, give, guarded,
    highwire_result, null,
};
use crate::server::{begin, counts, highwire_server, highwire_stats};
use highwire::server::{Engine, Runtime, Worker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// A server that the program's own event loop drives. It belongs to the thread that made it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_loop {
    /// Its number; 0 is none.
    pub id: u64,
}

thread_local! {
    /// The loops of this thread. One is `None` while its turn runs.
    static LOOPS: RefCell<HashMap<highwire_loop, Option<Box<Worker<Runtime>>>>> = RefCell::default();
}

const KIND: u64 = kind_bits::<highwire_loop>();

/// Runs the server inside a loop of this thread, with one worker. `engine` is 0 for io_uring, or epoll if that is
/// unavailable; 1 for io_uring only; 2 for epoll. The server's handle then serves only to get its addresses and to free
/// it. `HIGHWIRE_WORKERS` and `HIGHWIRE_ENGINE` are ignored. Free the loop before the server.
///
/// Wait, without a timeout, until the descriptor of `highwire_loop_descriptor` is readable, and then call
/// `highwire_loop_turn`; also call it once before the first wait.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_loop`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_new(
    server: highwire_server,
    engine: i32,
    out: *mut highwire_loop,
) -> highwire_result {
    guarded(|| {
        if out.is_null() {
            return null("out");
        }
        let engine = match engine {
            0 => Engine::Auto,
            1 => Engine::Uring,
            2 => Engine::Readiness,
            other => return failed(HIGHWIRE_INVALID_ARGUMENT, format!("{other} is not an engine; use 0, 1 or 2")),
        };
        let server = begin(server)?;
        let worker = crate::result::engine(Runtime::new(engine).and_then(|runtime| server.into_worker(runtime)))?;
        // SAFETY: as the caller promises.
        unsafe { give(out, add(Box::new(worker)), "out") }
    })
}

/// Runs a server inside a loop of this thread, over epoll. Returns the loop and its descriptor.
pub(crate) fn over_epoll(server: highwire::server::Server) -> Result<(highwire_loop, i32), Failed> {
    let runtime = crate::result::engine(Runtime::new(Engine::Readiness))?;
    let mut worker = crate::result::engine(server.into_worker(runtime))?;
    let descriptor = crate::result::engine(worker.descriptor())?;
    Ok((add(Box::new(worker)), descriptor))
}

/// Runs a turn of a loop of this thread.
pub(crate) fn turn(handle: highwire_loop) -> Result<bool, Failed> {
    with(handle, |worker| worker.turn_ready())
}

/// Returns true while a turn of this loop runs.
pub(crate) fn is_in_turn(handle: highwire_loop) -> bool {
    LOOPS.with_borrow(|loops| loops.get(&handle).is_some_and(Option::is_none))
}

fn add(worker: Box<Worker<Runtime>>) -> highwire_loop {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let handle = highwire_loop { id: KIND | NEXT.fetch_add(1, Ordering::Relaxed) };
    LOOPS.with_borrow_mut(|loops| loops.insert(handle, Some(worker)));
    handle
}

/// Calls `act` with a loop of this thread. The loop's handlers may call functions of other loops, so the table is not
/// borrowed meanwhile.
fn with<R>(handle: highwire_loop, act: impl FnOnce(&mut Worker<Runtime>) -> highwire::Result<R>) -> Result<R, Failed> {
    let taken = LOOPS.with_borrow_mut(|loops| loops.get_mut(&handle).map(Option::take));
    let mut worker = match taken {
        Some(Some(worker)) => worker,
        Some(None) => return failed(HIGHWIRE_WRONG_THREAD, "a turn of this loop runs already"),
        None => return failed(HIGHWIRE_INVALID_HANDLE, "this thread has no such loop"),
    };
    let result = act(&mut worker);
    let freed = LOOPS.with_borrow_mut(|loops| match loops.get_mut(&handle) {
        Some(place) => {
            *place = Some(worker);
            None
        }
        None => Some(worker),
    });
    // A handler has freed the loop. Dropping its connections calls the program, which may use other loops.
    drop(freed);
    engine(result)
}

/// Gives the descriptor that becomes readable when a turn has work to do. The loop owns it: do not close it.
///
/// # Safety
/// `out` must be NULL or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_descriptor(handle: highwire_loop, out: *mut i32) -> highwire_result {
    guarded(|| {
        let descriptor = with(handle, |worker| worker.descriptor())?;
        // SAFETY: as the caller promises.
        unsafe { give(out, descriptor, "out") }
    })
}

/// Runs a turn: does the work that is ready, without waiting. Gives 1 if the server has ended after a shutdown, and 0
/// otherwise.
///
/// # Safety
/// `has_ended` must be NULL or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_turn(handle: highwire_loop, has_ended: *mut i32) -> highwire_result {
    guarded(|| {
        let ended = with(handle, |worker| worker.turn_ready())?;
        if has_ended.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { give(has_ended, i32::from(ended), "has_ended") }
    })
}

/// Begins a graceful shutdown. Keep calling `highwire_loop_turn` until it gives 1.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_loop_shutdown(handle: highwire_loop) -> highwire_result {
    guarded(|| {
        with(handle, |worker| {
            worker.shutdown();
            Ok(())
        })
    })
}

/// Gives the counts of the server.
///
/// # Safety
/// `out` must be NULL or point to a `highwire_stats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_stats(handle: highwire_loop, out: *mut highwire_stats) -> highwire_result {
    guarded(|| {
        let stats = with(handle, |worker| Ok(counts(worker.stats(), worker.connections())))?;
        // SAFETY: as the caller promises.
        unsafe { give(out, stats, "out") }
    })
}

/// Frees a loop, and closes its connections at once.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_loop_free(handle: highwire_loop) -> highwire_result {
    guarded(|| match LOOPS.with_borrow_mut(|loops| loops.remove(&handle)) {
        Some(worker) => {
            drop(worker);
            Ok(())
        }
        None => failed(HIGHWIRE_INVALID_HANDLE, "this thread has no such loop"),
    })
}
