//! A server that the program's own event loop drives: one descriptor to poll, and a function that runs a turn.

use crate::handles::kind_bits;
use crate::result::{
    Failed, HIGHWIRE_INVALID_ARGUMENT, HIGHWIRE_INVALID_HANDLE, HIGHWIRE_WRONG_THREAD, engine, failed, give, guarded,
    highwire_result, null,
};
use crate::server::{begin, counts, highwire_server, highwire_stats};
use highwire::server::{Driver as _, Engine, Interest, Runtime, Worker};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A server that the program's own event loop drives. It belongs to the thread that made it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct highwire_loop {
    /// Its number; 0 is none.
    pub id: u64,
}

/// The events of a descriptor. Several are added.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub enum highwire_loop_event {
    /// It can be read, or has ended.
    HIGHWIRE_READABLE = 1,
    /// It can be written, or has ended.
    HIGHWIRE_WRITABLE = 2,
}

const READABLE: u32 = highwire_loop_event::HIGHWIRE_READABLE as u32;
const WRITABLE: u32 = highwire_loop_event::HIGHWIRE_WRITABLE as u32;

/// Called once when a watched descriptor is ready; see `highwire_loop_watch`. `events` has the events for which it is.
pub type highwire_loop_callback = Option<unsafe extern "C" fn(descriptor: i32, events: u32, data: *mut c_void)>;

/// A loop of this thread.
struct Loop {
    /// The worker; `None` while its turn runs.
    worker: Option<Box<Worker<Runtime>>>,
    /// The watched descriptors, with the number of their watch.
    watches: HashMap<i32, (u64, Watch)>,
    last_watch: u64,
    /// The changes that were made while a turn ran.
    changes: Vec<Change>,
}

/// What is called when a descriptor is ready.
#[derive(Clone, Copy)]
struct Watch {
    function: unsafe extern "C" fn(i32, u32, *mut c_void),
    data: *mut c_void,
}

/// A change of the watched descriptors, with the number of the watch.
enum Change {
    Watch(u64, i32, Interest),
    Unwatch(u64),
}

impl Change {
    fn apply(self, worker: &mut Worker<Runtime>) {
        match self {
            Change::Watch(number, descriptor, interest) => worker.watch(number, descriptor, interest),
            Change::Unwatch(number) => worker.unwatch(number),
        }
    }
}

thread_local! {
    /// The loops of this thread.
    static LOOPS: RefCell<HashMap<highwire_loop, Loop>> = RefCell::default();
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
    let (ended, ready) = with(handle, |worker| Ok((worker.turn_ready()?, worker.take_watched())))?;
    tell(handle, ready);
    Ok(ended)
}

/// Calls the program for the watched descriptors that are ready.
fn tell(handle: highwire_loop, ready: Vec<(u64, Interest)>) {
    for (number, interest) in ready {
        let watch = LOOPS.with_borrow_mut(|loops| {
            let watches = &mut loops.get_mut(&handle)?.watches;
            let descriptor = *watches.iter().find(|(_, (known, _))| *known == number)?.0;
            watches.remove(&descriptor).map(|(_, watch)| (descriptor, watch))
        });
        let Some((descriptor, Watch { function, data })) = watch else { continue };
        let events = if interest.readable { READABLE } else { 0 } | if interest.writable { WRITABLE } else { 0 };
        // SAFETY: the program has given the function as one of this type. It is C's and does not unwind.
        unsafe { function(descriptor, events, data) };
    }
}

/// Changes the watches of a loop. Calls `act` with the number of a new watch.
fn change_watches(handle: highwire_loop, act: impl FnOnce(&mut Loop) -> Option<Change>) -> Result<(), Failed> {
    LOOPS.with_borrow_mut(|loops| {
        let Some(own) = loops.get_mut(&handle) else {
            return failed(HIGHWIRE_INVALID_HANDLE, "this thread has no such loop");
        };
        let Some(change) = act(own) else { return Ok(()) };
        match &mut own.worker {
            Some(worker) => change.apply(worker),
            None => own.changes.push(change),
        }
        Ok(())
    })
}

/// Watches a descriptor of the program in the loop's own wait, until it is ready once for one of `events`
/// (`HIGHWIRE_READABLE`, `HIGHWIRE_WRITABLE`, or both). A turn then calls `callback`, which may watch it again. A second
/// watch of the same descriptor replaces the first. End the watch before you close the descriptor.
///
/// # Safety
/// `callback` must be a function with the signature of its type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_watch(
    handle: highwire_loop,
    descriptor: i32,
    events: u32,
    callback: highwire_loop_callback,
    data: *mut c_void,
) -> highwire_result {
    guarded(|| {
        let Some(function) = callback else { return null("callback") };
        if descriptor < 0 || events == 0 || events & !(READABLE | WRITABLE) != 0 {
            return failed(HIGHWIRE_INVALID_ARGUMENT, "the descriptor or the events are not valid");
        }
        let interest = Interest { readable: events & READABLE != 0, writable: events & WRITABLE != 0 };
        end_watch(handle, descriptor)?;
        change_watches(handle, |own| {
            own.last_watch += 1;
            own.watches.insert(descriptor, (own.last_watch, Watch { function, data }));
            Some(Change::Watch(own.last_watch, descriptor, interest))
        })
    })
}

fn end_watch(handle: highwire_loop, descriptor: i32) -> Result<(), Failed> {
    change_watches(handle, |own| own.watches.remove(&descriptor).map(|(number, _)| Change::Unwatch(number)))
}

/// Ends the watch of a descriptor. Does nothing if it is not watched.
#[unsafe(no_mangle)]
pub extern "C" fn highwire_loop_unwatch(handle: highwire_loop, descriptor: i32) -> highwire_result {
    guarded(|| end_watch(handle, descriptor))
}

/// Runs a turn that waits until something happens: for the server, for a watched descriptor, or for at most
/// `milliseconds` (without a limit if negative). It is for a program whose loop this is; others wait for
/// `highwire_loop_descriptor` and call `highwire_loop_turn`. A signal may end the wait early. Gives 1 if the server has
/// ended after a shutdown, and 0 otherwise.
///
/// # Safety
/// `has_ended` must be NULL or point to an `int`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn highwire_loop_wait(
    handle: highwire_loop,
    milliseconds: i64,
    has_ended: *mut i32,
) -> highwire_result {
    guarded(|| {
        let (ended, ready) = with(handle, |worker| {
            let wait = u64::try_from(milliseconds).ok().map(Duration::from_millis);
            let limit = wait.map(|wait| worker.driver().now() + wait);
            Ok((worker.turn(limit)?, worker.take_watched()))
        })?;
        tell(handle, ready);
        if has_ended.is_null() {
            return Ok(());
        }
        // SAFETY: as the caller promises.
        unsafe { give(has_ended, i32::from(ended), "has_ended") }
    })
}

/// Returns true while a turn of this loop runs.
pub(crate) fn is_in_turn(handle: highwire_loop) -> bool {
    LOOPS.with_borrow(|loops| loops.get(&handle).is_some_and(|own| own.worker.is_none()))
}

fn add(worker: Box<Worker<Runtime>>) -> highwire_loop {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let handle = highwire_loop { id: KIND | NEXT.fetch_add(1, Ordering::Relaxed) };
    let own = Loop { worker: Some(worker), watches: HashMap::new(), last_watch: 0, changes: Vec::new() };
    LOOPS.with_borrow_mut(|loops| loops.insert(handle, own));
    handle
}

/// Calls `act` with a loop of this thread. The loop's handlers may call functions of other loops, so the table is not
/// borrowed meanwhile.
fn with<R>(handle: highwire_loop, act: impl FnOnce(&mut Worker<Runtime>) -> highwire::Result<R>) -> Result<R, Failed> {
    let taken = LOOPS.with_borrow_mut(|loops| loops.get_mut(&handle).map(|own| own.worker.take()));
    let mut worker = match taken {
        Some(Some(worker)) => worker,
        Some(None) => return failed(HIGHWIRE_WRONG_THREAD, "a turn of this loop runs already"),
        None => return failed(HIGHWIRE_INVALID_HANDLE, "this thread has no such loop"),
    };
    let result = act(&mut worker);
    let freed = LOOPS.with_borrow_mut(|loops| match loops.get_mut(&handle) {
        Some(own) => {
            own.changes.drain(..).for_each(|change| change.apply(&mut worker));
            own.worker = Some(worker);
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
        let ended = turn(handle)?;
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
