//! Wraps a middleware around a route. The result is another route; its endpoint calls the middleware and the inner
//! route's endpoint.

use super::Middleware;
use crate::app::shared::AppData;
use crate::handler::{Endpoint, Route};
use crate::message::provided::Provided;
use crate::message::request::{BodyUse, Request};
use crate::templates;
use crate::{Response, StatusCode};
use highwire_engine::reply::Awaited;
use highwire_engine::{Cause, Outcome};
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

thread_local! {
    /// The last panic that a middleware of this thread has caught, and true if there is one.
    static CAUGHT: Cell<Option<Cause>> = const { Cell::new(None) };
    static HAS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// Takes the panic that a middleware has caught since the last call.
#[inline]
pub(crate) fn take_caught() -> Option<Cause> {
    if HAS_CAUGHT.replace(false) { CAUGHT.take() } else { None }
}

/// A middleware of any type, in the form that apps and handlers store.
pub(crate) trait Layer: Send + Sync {
    /// Wraps the middleware around a route.
    fn wrap(&self, inner: Arc<dyn Route>) -> Arc<dyn Route>;
}

impl<M: Middleware> Layer for Arc<M> {
    fn wrap(&self, inner: Arc<dyn Route>) -> Arc<dyn Route> {
        Arc::new(Wrapped { inner, middleware: self.clone() })
    }
}

struct Wrapped<M> {
    inner: Arc<dyn Route>,
    middleware: Arc<M>,
}

impl<M: Middleware> Route for Wrapped<M> {
    fn body_use(&self) -> BodyUse {
        self.inner.body_use()
    }
    fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
        self.inner.check(provided)
    }
    fn body_limit(&self) -> Option<u64> {
        self.inner.body_limit()
    }
    fn is_async(&self) -> bool {
        self.inner.is_async()
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        let inner = self.inner.clone().endpoint();
        Box::new(WrappedEndpoint { inner, route: self, waiting: RefCell::default(), app: OnceCell::new() })
    }
}

/// The cause of the 500 of a middleware that has not called the handler.
fn uncalled() -> Box<dyn Any + Send> {
    Box::new("Middleware::within has not called the step")
}

struct WrappedEndpoint<M: Middleware> {
    inner: Box<dyn Endpoint>,
    route: Arc<Wrapped<M>>,
    waiting: RefCell<Places<Waiting<M::State>>>,
    /// The app, which makes the response to a panic. Known from the first request on.
    app: OnceCell<Arc<AppData>>,
}

/// A request that waits for its response.
struct Waiting<S> {
    state: S,
    /// The place of the inner endpoint's future, if that future is pending.
    place: Option<u32>,
    /// The slot of the response, if the handler took a [`Reply`](crate::Reply).
    reply: Option<Awaited>,
}

/// Values with numbers. A value is taken out while it is used, so that a handler may call its own route meanwhile.
struct Places<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    fn add(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[place as usize] = Some(value);
        place
    }
}

impl<M: Middleware> WrappedEndpoint<M> {
    /// Returns the response to a request whose handler or inner middleware has panicked. The app's service logs it, because it
    /// knows the route.
    fn panicked(&self, payload: Box<dyn Any + Send>) -> Response {
        CAUGHT.set(Some(Cause::of(payload)));
        HAS_CAUGHT.set(true);
        let (status, text) = (StatusCode::INTERNAL_SERVER_ERROR, "internal server error");
        match self.app.get() {
            Some(app) => {
                // The function is the outermost app's.
                let _templates = templates::enter(&app.states[0].templates().map(Rc::new));
                app.error(status, text)
            }
            None => Response::error(status, format!("{text}\n")),
        }
    }

    /// Looks for the response to a waiting request, first in the slot of its `Reply`, then by polling the inner
    /// endpoint's future.
    fn look(&self, waiting: &mut Waiting<M::State>, cx: &mut Context<'_>) -> Poll<Response> {
        let taken = catch_unwind(AssertUnwindSafe(|| waiting.reply.as_ref().and_then(|slot| slot.take())));
        if let Some(response) = taken.unwrap_or_else(|payload| Some(self.panicked(payload))) {
            self.give_up(waiting);
            return Poll::Ready(response);
        }
        if let Some(place) = waiting.place {
            let mut polled = None;
            let state = &mut waiting.state;
            let stepped = catch_unwind(AssertUnwindSafe(|| {
                self.route.middleware.within(state, &mut || polled = Some(self.inner.poll(place, cx)));
            }));
            let polled = match (stepped, polled) {
                (Ok(()), Some(polled)) => polled,
                (stepped, polled) => {
                    if polled.is_none_or(|polled| polled.is_pending()) {
                        self.inner.cancel(place);
                    }
                    Poll::Ready(self.panicked(stepped.err().unwrap_or_else(uncalled)))
                }
            };
            if let Poll::Ready(response) = polled {
                waiting.place = None;
                // A handler that took a `Reply` answers only through that `Reply`; the handler's own result is ignored.
                if waiting.reply.as_ref().is_none_or(Awaited::is_waived) {
                    return Poll::Ready(response);
                }
            }
        }
        Poll::Pending
    }

    /// Asks the middleware for a response in place of the handler's. If the middleware has one or panics, gives up the
    /// handler.
    fn pending(&self, waiting: &mut Waiting<M::State>, cx: &mut Context<'_>) -> Poll<Response> {
        let asked = catch_unwind(AssertUnwindSafe(|| self.route.middleware.pending(&mut waiting.state, cx)));
        let asked = asked.unwrap_or_else(|payload| Poll::Ready(self.panicked(payload)));
        if asked.is_ready() {
            self.give_up(waiting);
        }
        asked
    }

    fn give_up(&self, waiting: &mut Waiting<M::State>) {
        waiting.reply = None;
        if let Some(place) = waiting.place.take() {
            self.inner.cancel(place);
        }
    }
}

impl<M: Middleware> Endpoint for WrappedEndpoint<M> {
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
        let middleware = &self.route.middleware;
        self.app.get_or_init(|| request.shared.app.clone());
        let mut state = match middleware.before(request) {
            Ok(state) => state,
            Err(response) => {
                *answer = Some(response);
                return Outcome::Ready;
            }
        };
        let mut called = None;
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            middleware.within(&mut state, &mut || called = Some(self.inner.call(request, answer)));
        }));
        let outcome = match (stepped, called) {
            (Ok(()), Some(outcome)) => outcome,
            (stepped, called) => {
                if let Some(Outcome::Pending(place)) = called {
                    self.inner.cancel(place);
                }
                request.hooks.reply = None;
                *answer = Some(self.panicked(stepped.err().unwrap_or_else(uncalled)));
                Outcome::Ready
            }
        };
        let reply = request.hooks.reply.take();
        let place = match (outcome, &mut *answer) {
            (Outcome::Ready, Some(response)) if reply.is_none() => {
                response.own_headers();
                middleware.after(state, response);
                return Outcome::Ready;
            }
            (Outcome::Ready, _) => None,
            (Outcome::Pending(place), _) => Some(place),
        };
        *answer = None;
        let mut waiting = Waiting { state, place, reply };
        // Lets the middleware register its own wakeup, such as for a deadline.
        if let Poll::Ready(response) = self.pending(&mut waiting, &mut Context::from_waker(&request.waker())) {
            *answer = Some(response);
            return Outcome::Ready;
        }
        Outcome::Pending(self.waiting.borrow_mut().add(waiting))
    }

    fn poll(&self, place: u32, cx: &mut Context<'_>) -> Poll<Response> {
        let taken = self.waiting.borrow_mut().places[place as usize].take();
        let Some(mut waiting) = taken else { return Poll::Pending };
        let response = match self.look(&mut waiting, cx) {
            Poll::Ready(mut response) => {
                // The place is freed before `after` is called, because `after` may panic.
                self.waiting.borrow_mut().free.push(place);
                response.own_headers();
                self.route.middleware.after(waiting.state, &mut response);
                response
            }
            Poll::Pending => match self.pending(&mut waiting, cx) {
                Poll::Ready(response) => {
                    self.waiting.borrow_mut().free.push(place);
                    response
                }
                Poll::Pending => {
                    self.waiting.borrow_mut().places[place as usize] = Some(waiting);
                    return Poll::Pending;
                }
            },
        };
        Poll::Ready(response)
    }

    fn cancel(&self, place: u32) {
        let taken = self.waiting.borrow_mut().places[place as usize].take();
        if let Some(mut waiting) = taken {
            self.waiting.borrow_mut().free.push(place);
            self.give_up(&mut waiting);
        }
    }
}

/// The innermost route of an app's middleware for requests without a route. Responds with the router's response, such
/// as a 405, if there is one; otherwise with that of [`App::not_found`](crate::App::not_found).
pub(crate) struct Missed;

impl Route for Missed {
    fn body_use(&self) -> BodyUse {
        BodyUse::None
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        Box::new(Missed)
    }
}

impl Endpoint for Missed {
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
        let missed = request.missed.take().map(|response| *response);
        *answer = Some(missed.unwrap_or_else(|| request.not_found()));
        Outcome::Ready
    }
    fn poll(&self, _: u32, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }
    fn cancel(&self, _: u32) {}
}
