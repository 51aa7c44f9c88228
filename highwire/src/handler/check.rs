//! A macro that checks a handler part by part, for errors that name the part.

use crate::IntoResponse;
use crate::message::async_request::AsyncFromRequest;
use crate::message::request::{FromRequest, Request};
use std::future::Future;
use std::marker::PhantomData;

/// Passes a handler through, and checks it part by part, so that the compiler names what keeps it from being a handler: the
/// argument that is no extractor, or the result that is no response. Without the macro, the compiler only says that the function is no
/// [`Handler`](crate::Handler), because it might be one in several ways.
///
/// It is for plain and async functions, and costs nothing at run time.
///
/// ```
/// use highwire::{App, Path, check_handler};
///
/// async fn show(Path(id): Path<u32>) -> String {
///     format!("user {id}")
/// }
///
/// let app = App::new().get("/users/{id}", check_handler!(show));
/// # let _ = app;
/// ```
#[macro_export]
macro_rules! check_handler {
    ($handler:expr $(,)?) => {{
        #[allow(unused_imports, reason = "a handler is either async or not")]
        use $crate::__check::{LaterKind as _, NowKind as _};
        let handler = $crate::__check::shared($handler);
        let signature = $crate::__check::signature(&handler);
        let kind = (&signature).kind();
        kind.arguments(&signature);
        kind.result(&signature);
        handler
    }};
}

/// Takes what threads can share, and what borrows nothing.
pub fn shared<F: Send + Sync + 'static>(handler: F) -> F {
    handler
}

/// A function with the arguments `A`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a function of at most eight arguments that can be called again and again",
    note = "a handler is a function, or a closure that changes nothing it has captured; a tuple of extractors counts as one argument"
)]
pub trait Function<A> {
    /// What the function returns.
    type Result;
}

/// The arguments and the result of a function.
#[derive(Debug)]
pub struct Signature<A, R>(PhantomData<fn(A) -> R>);

/// Returns the signature of a function.
pub fn signature<A, F: Function<A>>(_: &F) -> Signature<A, F::Result> {
    Signature(PhantomData)
}

/// A function whose result is the response.
#[derive(Debug)]
pub struct Now;

/// A function whose result is a future of the response.
#[derive(Debug)]
pub struct Later;

/// Tells [`Later`] functions. The compiler looks for this method first.
pub trait LaterKind {
    /// Returns the kind.
    fn kind(&self) -> Later {
        Later
    }
}

impl<A, R: Future> LaterKind for Signature<A, R> {}

/// Tells all other functions: the method has one reference more.
pub trait NowKind {
    /// Returns the kind.
    fn kind(&self) -> Now {
        Now
    }
}

impl<A, R> NowKind for &Signature<A, R> {}

/// Arguments of a plain function.
pub trait NowArguments {}

/// Arguments of an async function.
pub trait LaterArguments {}

impl NowArguments for (&Request<'_>,) {}

impl Now {
    /// Takes a function whose arguments are those of a handler.
    pub fn arguments<A: NowArguments, R>(&self, _: &Signature<A, R>) {}

    /// Takes a function whose result is that of a handler.
    pub fn result<A, R: IntoResponse>(&self, _: &Signature<A, R>) {}
}

impl Later {
    /// Takes a function whose arguments are those of a handler.
    pub fn arguments<A: LaterArguments, R>(&self, _: &Signature<A, R>) {}

    /// Takes a function whose future's result is that of a handler.
    pub fn result<A, R: Future<Output: IntoResponse>>(&self, _: &Signature<A, R>) {}
}

macro_rules! functions {
    ($($argument:ident)*) => {
        impl<F: Fn($($argument),*) -> R, R, $($argument),*> Function<($($argument,)*)> for F {
            type Result = R;
        }
        impl<$($argument: FromRequest),*> NowArguments for ($($argument,)*) {}
        impl<$($argument: AsyncFromRequest),*> LaterArguments for ($($argument,)*) {}
    };
}

super::for_each_arity!(functions);
