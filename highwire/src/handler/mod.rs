//! Handlers, which are plain functions, async functions and blocking functions, behind one trait.
//!
//! An app registers a handler once, and each worker makes an *endpoint* of it. The endpoint of a plain function calls
//! the function. The endpoint of an async function keeps a pool of pinned places for the function's futures. A future
//! stays in its place from its first poll on, and places are reused, so that the steady state allocates nothing.

pub mod check;
mod direct;
mod pool;

use crate::app::shared::Shared;
use crate::message::async_request::AsyncFromRequest;
use crate::message::provided::Provided;
use crate::message::request::{BodyUse, FromRequest, Request, one_body};
use crate::middleware::{IntoLayer, Layer};
#[cfg(feature = "openapi")]
use crate::openapi::documented::Documentation;
use crate::{IntoResponse, Reply, Response};
pub use direct::{Direct, Directly, direct};
use highwire_engine::Outcome;
use highwire_engine::reply::{Awaited, Waiver};
pub(crate) use pool::Pool;
use std::any::type_name;
use std::future::Future;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A handler on one worker.
pub(crate) trait Endpoint {
    /// Calls the handler. A ready response is put into `answer` and not returned, because the large struct would be
    /// copied at each of several returns, and each copy would wait for the stores of the previous one (measured: 25 of
    /// 120 ns).
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome;
    /// Polls a pending future again. If the future is ready, its place becomes free.
    fn poll(&self, place: u32, cx: &mut Context<'_>) -> Poll<Response>;
    /// Drops a pending future.
    fn cancel(&self, place: u32);
}

/// A handler in the app, which all workers share.
pub(crate) trait Route: Send + Sync {
    fn body_use(&self) -> BodyUse;
    /// Returns the most bytes of a request's body, if the route does not use the server's limit.
    fn body_limit(&self) -> Option<u64> {
        None
    }
    /// Returns true if a future makes the response. If a handler holds its worker for too long, the warning is then
    /// about a single poll.
    fn is_async(&self) -> bool {
        false
    }
    /// Checks that the app provides what the handler's extractors need. Returns the handler, and why it can never be called.
    fn check(&self, _: &Provided<'_>) -> Result<(), String> {
        Ok(())
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint>;
}

/// A function that [`App`](crate::App) takes as a handler: a plain function, an async function or [`blocking`], each
/// with up to eight extractors as arguments; or a plain function of `&Request`, for data that no extractor gives. `M`
/// only distinguishes the implementations of this trait.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Path, Request, blocking, time};
/// use std::time::Duration;
///
/// async fn slow(Path(name): Path<String>) -> String {
///     time::sleep(Duration::from_millis(5)).await;
///     format!("{name}, at last")
/// }
///
/// let app = App::new()
///     .get("/plain", || "at once")
///     .get("/slow/{name}", slow)
///     .get("/blocking", blocking(|| std::fs::read_to_string("/nothing").map_err(|error| error.to_string())))
///     .get("/request", |request: &Request<'_>| request.target().to_string());
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/slow/ann").send().text(), "ann, at last");
/// assert_eq!(client.get("/request?x").send().text(), "/request?x");
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler",
    note = "a handler is a function of at most eight arguments that are extractors (`FromRequest`), whose result, or whose future's result, is a response (`IntoResponse`)",
    note = "`highwire::check_handler!(handler)` names the argument or the result that is not"
)]
pub trait Handler<M>: private::IntoRoute<M> + Send + Sync + 'static {
    /// Wraps a middleware around this handler alone. As with [`App::with`](crate::App::with), the first one is the outermost.
    fn with(self, middleware: impl IntoLayer) -> With<Self>
    where
        Self: Sized,
    {
        With { handler: self, layer: middleware.into_layer() }
    }
}

/// A handler with a middleware around it.
pub struct With<H> {
    handler: H,
    layer: Arc<dyn Layer>,
}

impl<H> std::fmt::Debug for With<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("With")
    }
}

/// The `M` of [`Handler`] for handlers with a middleware.
#[derive(Debug)]
pub struct Within<M>(PhantomData<M>);

impl<M, H: Handler<M>> Handler<Within<M>> for With<H> {}

impl<M, H: Handler<M>> IntoRoute<Within<M>> for With<H> {
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        self.into_route_within(Vec::new())
    }

    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route_within(self, mut layers: Vec<Arc<dyn Layer>>) -> Arc<dyn Route> {
        layers.push(self.layer);
        self.handler.into_route_within(layers)
    }

    #[cfg(feature = "openapi")]
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn documentation(&self) -> Documentation {
        self.handler.documentation()
    }
}

pub(crate) mod private {
    use super::Route;
    use crate::middleware::Layer;
    #[cfg(feature = "openapi")]
    use crate::openapi::documented::Documentation;
    use std::sync::Arc;

    pub trait IntoRoute<M>: Sized {
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn into_route(self) -> Arc<dyn Route>;

        /// Makes the route inside of middleware, the innermost first.
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn into_route_within(self, layers: Vec<Arc<dyn Layer>>) -> Arc<dyn Route> {
            layers.iter().fold(self.into_route(), |route, layer| layer.wrap(route))
        }

        /// Returns what the OpenAPI document says of this handler.
        #[cfg(feature = "openapi")]
        #[expect(private_interfaces, reason = "the trait is sealed")]
        fn documentation(&self) -> Documentation {
            Documentation::Missing(std::any::type_name::<Self>())
        }
    }
}

use private::IntoRoute;

/// The `M` of [`Handler`] for plain functions.
#[derive(Debug)]
pub struct Plain<A>(PhantomData<A>);
/// The `M` of [`Handler`] for async functions.
#[derive(Debug)]
pub struct Async<A>(PhantomData<A>);
/// The `M` of [`Handler`] for plain functions of `&Request`.
#[derive(Debug)]
pub struct Borrowing;
/// The `M` of [`Handler`] for [`Blocking`].
#[derive(Debug)]
pub struct Offloaded<A>(PhantomData<A>);

/// A handler that runs a function on the blocking pool. [`blocking`] makes it.
#[derive(Clone, Debug)]
pub struct Blocking<F>(F);

/// Makes a handler of a function that blocks or computes for long. The worker runs the extractors; a thread of the
/// bounded blocking pool then runs the function. The response is 503 if the pool is full. If the client disconnects or
/// ends its direction, or a deadline passes, before the function has begun, the function never runs, so the client can
/// safely try again. A function that has begun runs to its end.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, Path, blocking};
///
/// let sum = blocking(|Path(last): Path<u64>| (1..=last).sum::<u64>().to_string());
/// assert_eq!(Client::new(App::new().get("/sum/{last}", sum))?.get("/sum/1000").send().text(), "500500");
/// # Ok::<(), highwire::Error>(())
/// ```
pub fn blocking<F>(function: F) -> Blocking<F> {
    Blocking(function)
}

struct PlainRoute<F, A> {
    function: F,
    /// The handler's name, for errors.
    handler: &'static str,
    arguments: PhantomData<fn(A)>,
}

struct PlainEndpoint<F, A>(Arc<PlainRoute<F, A>>);

struct AsyncRoute<F, S, A, Fut> {
    function: Arc<F>,
    /// Makes the handler's arguments of what was extracted, and calls the function.
    start: S,
    /// The handler's name, for errors.
    handler: &'static str,
    kinds: PhantomData<fn(A) -> Fut>,
}

struct AsyncEndpoint<F, S, A, Fut> {
    #[expect(
        clippy::redundant_allocation,
        reason = "the futures of a worker share the function without atomic counts"
    )]
    function: Rc<Arc<F>>,
    route: Arc<AsyncRoute<F, S, A, Fut>>,
    pool: Pool<Fut>,
}

/// Says why a handler can never be called.
fn named(handler: &str, text: &str) -> String {
    format!("the handler `{}` can never be called: {text}", handler.replace("::{{closure}}", "::{closure}"))
}

/// Calls a macro with the names of types for every number of arguments that a handler may have.
macro_rules! for_each_arity {
    ($call:ident) => {
        $call!();
        $call!(A);
        $call!(A B);
        $call!(A B C);
        $call!(A B C D);
        $call!(A B C D E);
        $call!(A B C D E G);
        $call!(A B C D E G H);
        $call!(A B C D E G H I);
    };
}
pub(crate) use for_each_arity;

macro_rules! handlers {
    ($($argument:ident)*) => {
        impl<F, R, $($argument),*> Handler<Plain<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($argument: FromRequest + 'static,)*
        {}

        impl<F, R, $($argument),*> IntoRoute<Plain<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($argument: FromRequest + 'static,)*
        {
            #[expect(private_interfaces, reason = "the trait is sealed")]
            fn into_route(self) -> Arc<dyn Route> {
                Arc::new(PlainRoute::<F, ($($argument,)*)> { function: self, handler: type_name::<F>(), arguments: PhantomData })
            }
        }

        impl<F, R, $($argument),*> Route for PlainRoute<F, ($($argument,)*)>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($argument: FromRequest + 'static,)*
        {
            fn body_use(&self) -> BodyUse {
                const { one_body(&[$($argument::BODY),*]) }
            }
            #[allow(unused_variables, reason = "one macro for every number of arguments")]
            fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
                $($argument::check(provided).map_err(|text| named(self.handler, &text))?;)*
                Ok(())
            }
            fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
                Box::new(PlainEndpoint(self))
            }
        }

        impl<F, R, $($argument),*> Endpoint for PlainEndpoint<F, ($($argument,)*)>
        where
            F: Fn($($argument),*) -> R,
            R: IntoResponse,
            $($argument: FromRequest,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "one macro for every number of arguments")]
            fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
                $(let $argument = match $argument::from_request(request) {
                    Ok(argument) => argument,
                    Err(response) => {
                        // The refusal is the response, even if an earlier extractor was a `Reply`.
                        request.hooks.reply = None;
                        *answer = Some(request.refused(response));
                        return Outcome::Ready;
                    }
                };)*
                *answer = Some((self.0.function)($($argument),*).into_response());
                Outcome::Ready
            }
            fn poll(&self, _: u32, _: &mut Context<'_>) -> Poll<Response> {
                Poll::Pending
            }
            fn cancel(&self, _: u32) {}
        }

        impl<F, Fut, $($argument),*> Handler<Async<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future + 'static,
            Fut::Output: IntoResponse,
            $($argument: AsyncFromRequest + 'static, $argument::Parts: 'static,)*
        {}

        impl<F, Fut, $($argument),*> IntoRoute<Async<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future + 'static,
            Fut::Output: IntoResponse,
            $($argument: AsyncFromRequest + 'static, $argument::Parts: 'static,)*
        {
            #[allow(non_snake_case, reason = "one macro for every number of arguments")]
            #[expect(private_interfaces, reason = "the trait is sealed")]
            fn into_route(self) -> Arc<dyn Route> {
                #[allow(unused_variables, reason = "one macro for every number of arguments")]
                let start = |function: Rc<Arc<F>>, waiver: Option<Waiver>, $($argument: $argument::Parts),*| async move {
                    $(let $argument = match $argument::from_parts($argument).await {
                        Ok(argument) => argument,
                        Err(response) => {
                            // The refusal is the response, even if another argument is a `Reply`.
                            waiver.iter().for_each(Waiver::waive);
                            return response;
                        }
                    };)*
                    function($($argument),*).await.into_response()
                };
                let handler = type_name::<F>();
                Arc::new(AsyncRoute::<F, _, ($($argument::Parts,)*), _> {
                    function: Arc::new(self),
                    start,
                    handler,
                    kinds: PhantomData,
                })
            }
        }

        impl<F, S, Fut, $($argument),*> Route for AsyncRoute<F, S, ($($argument,)*), Fut>
        where
            F: Send + Sync + 'static,
            S: Fn(Rc<Arc<F>>, Option<Waiver>, $($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future<Output = Response> + 'static,
            $($argument: FromRequest + 'static,)*
        {
            fn body_use(&self) -> BodyUse {
                const { one_body(&[$($argument::BODY),*]) }
            }
            #[allow(unused_variables, reason = "one macro for every number of arguments")]
            fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
                $($argument::check(provided).map_err(|text| named(self.handler, &text))?;)*
                Ok(())
            }
            fn is_async(&self) -> bool {
                true
            }
            fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
                Box::new(AsyncEndpoint { function: Rc::new(self.function.clone()), route: self, pool: Pool::default() })
            }
        }

        impl<F, S, Fut, $($argument),*> Endpoint for AsyncEndpoint<F, S, ($($argument,)*), Fut>
        where
            S: Fn(Rc<Arc<F>>, Option<Waiver>, $($argument),*) -> Fut,
            Fut: Future<Output = Response>,
            $($argument: FromRequest,)*
        {
            #[allow(non_snake_case, unused_variables, reason = "one macro for every number of arguments")]
            fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
                $(let $argument = match $argument::from_request(request) {
                    Ok(argument) => argument,
                    Err(response) => {
                        // The refusal is the response, even if an earlier extractor was a `Reply`.
                        request.hooks.reply = None;
                        *answer = Some(request.refused(response));
                        return Outcome::Ready;
                    }
                };)*
                let waiver = request.hooks.reply.as_ref().map(Awaited::waiver);
                let future = (self.route.start)(self.function.clone(), waiver, $($argument),*);
                let outcome = self.pool.start(future, &request.waker(), answer);
                if request.hooks.reply.as_ref().is_some_and(Awaited::is_waived) {
                    request.hooks.reply = None;
                }
                outcome
            }
            fn poll(&self, place: u32, cx: &mut Context<'_>) -> Poll<Response> {
                self.pool.poll(place, cx)
            }
            fn cancel(&self, place: u32) {
                self.pool.cancel(place);
            }
        }

        impl<F, R, $($argument),*> Handler<Offloaded<($($argument,)*)>> for Blocking<F>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse + Send + 'static,
            $($argument: FromRequest + Send + 'static,)*
        {}

        impl<F, R, $($argument),*> IntoRoute<Offloaded<($($argument,)*)>> for Blocking<F>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse + Send + 'static,
            $($argument: FromRequest + Send + 'static,)*
        {
            #[allow(non_snake_case, reason = "one macro for every number of arguments")]
            #[expect(private_interfaces, reason = "the trait is sealed")]
            fn into_route(self) -> Arc<dyn Route> {
                let function = Arc::new(self.0);
                let offload = move |offload: Offload, $($argument: $argument),*| {
                    let function = function.clone();
                    offload.run(move || function($($argument),*));
                };
                Arc::new(PlainRoute::<_, (Offload, $($argument,)*)> {
                    function: offload,
                    handler: type_name::<F>(),
                    arguments: PhantomData,
                })
            }
        }
    };
}

for_each_arity!(handlers);
// This is one argument more than handlers may have, because `blocking` adds an `Offload`.
macro_rules! ninth {
    ($($argument:ident)*) => {
        impl<F, R, $($argument),*> Route for PlainRoute<F, ($($argument,)*)>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse,
            $($argument: FromRequest + 'static,)*
        {
            fn body_use(&self) -> BodyUse {
                const { one_body(&[$($argument::BODY),*]) }
            }
            #[allow(unused_variables, reason = "one macro for every number of arguments")]
            fn check(&self, provided: &Provided<'_>) -> Result<(), String> {
                $($argument::check(provided).map_err(|text| named(self.handler, &text))?;)*
                Ok(())
            }
            fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
                Box::new(PlainEndpoint(self))
            }
        }

        impl<F, R, $($argument),*> Endpoint for PlainEndpoint<F, ($($argument,)*)>
        where
            F: Fn($($argument),*) -> R,
            R: IntoResponse,
            $($argument: FromRequest,)*
        {
            #[allow(non_snake_case, reason = "as in the other macro")]
            fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
                $(let $argument = match $argument::from_request(request) {
                    Ok(argument) => argument,
                    Err(response) => {
                        // The refusal is the response, even if an earlier extractor was a `Reply`.
                        request.hooks.reply = None;
                        *answer = Some(request.refused(response));
                        return Outcome::Ready;
                    }
                };)*
                *answer = Some((self.0.function)($($argument),*).into_response());
                Outcome::Ready
            }
            fn poll(&self, _: u32, _: &mut Context<'_>) -> Poll<Response> {
                Poll::Pending
            }
            fn cancel(&self, _: u32) {}
        }
    };
}
ninth!(A B C D E G H I J);

/// An extractor that runs a function on the blocking pool and responds with its result.
struct Offload {
    reply: Reply,
    shared: Arc<Shared>,
}

impl Offload {
    fn run<R: IntoResponse + Send + 'static>(self, function: impl FnOnce() -> R + Send + 'static) {
        let Offload { reply, shared } = self;
        reply.offload(shared.engine(), function);
    }
}

impl FromRequest for Offload {
    fn from_request(request: &mut Request<'_>) -> Result<Offload, Response> {
        Ok(Offload { reply: Reply::from_request(request)?, shared: request.shared.clone() })
    }
}

struct BorrowingRoute<F>(F);

struct BorrowingEndpoint<F>(Arc<BorrowingRoute<F>>);

impl<F, R> Handler<Borrowing> for F
where
    F: Fn(&Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
}

impl<F, R> IntoRoute<Borrowing> for F
where
    F: Fn(&Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    #[expect(private_interfaces, reason = "the trait is sealed")]
    fn into_route(self) -> Arc<dyn Route> {
        Arc::new(BorrowingRoute(self))
    }
}

impl<F, R> Route for BorrowingRoute<F>
where
    F: Fn(&Request<'_>) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn body_use(&self) -> BodyUse {
        BodyUse::None
    }
    fn endpoint(self: Arc<Self>) -> Box<dyn Endpoint> {
        Box::new(BorrowingEndpoint(self))
    }
}

impl<F, R> Endpoint for BorrowingEndpoint<F>
where
    F: Fn(&Request<'_>) -> R,
    R: IntoResponse,
{
    fn call(&self, request: &mut Request<'_>, answer: &mut Option<Response>) -> Outcome {
        *answer = Some((self.0.0)(request).into_response());
        Outcome::Ready
    }
    fn poll(&self, _: u32, _: &mut Context<'_>) -> Poll<Response> {
        Poll::Pending
    }
    fn cancel(&self, _: u32) {}
}
