//! Handlers whose types describe them.

use super::{Description, OperationInput, OperationOutput};
use crate::IntoResponse;
use crate::handler::{Async, Blocking, Handler, Offloaded, Plain, With, Within, for_each_arity};
use crate::message::async_request::AsyncFromRequest;
use crate::message::request::FromRequest;
use std::future::Future;

/// A handler whose arguments are [`OperationInput`] and whose result, or whose future's result, is [`OperationOutput`].
#[diagnostic::on_unimplemented(
    message = "the OpenAPI document cannot describe the handler `{Self}`",
    note = "each argument must be `OperationInput` and the result `OperationOutput`; `Json<T>`, `Query<T>`, `Path<T>` and `Form<T>` are, if `T` derives `schemars::JsonSchema`; `openapi::hidden(handler)` leaves a route out of the document"
)]
pub trait DescribedHandler<M>: Handler<M> {
    #[doc(hidden)]
    fn describe(description: &mut Description<'_>);
    #[doc(hidden)]
    fn name() -> &'static str {
        std::any::type_name::<Self>()
    }
}

impl<M, H: DescribedHandler<M>> DescribedHandler<Within<M>> for With<H> {
    fn describe(description: &mut Description<'_>) {
        H::describe(description);
    }
    fn name() -> &'static str {
        H::name()
    }
}

macro_rules! handlers {
    ($($argument:ident)*) => {
        impl<F, R, $($argument),*> DescribedHandler<Plain<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse + OperationOutput,
            $($argument: FromRequest + OperationInput + 'static,)*
        {
            fn describe(description: &mut Description<'_>) {
                $($argument::describe_input(description);)*
                R::describe_output(description);
            }
        }

        impl<F, Fut, $($argument),*> DescribedHandler<Async<($($argument,)*)>> for F
        where
            F: Fn($($argument),*) -> Fut + Send + Sync + 'static,
            Fut: Future + 'static,
            Fut::Output: IntoResponse + OperationOutput,
            $($argument: AsyncFromRequest + OperationInput + 'static, $argument::Parts: 'static,)*
        {
            fn describe(description: &mut Description<'_>) {
                $($argument::describe_input(description);)*
                Fut::Output::describe_output(description);
            }
        }

        impl<F, R, $($argument),*> DescribedHandler<Offloaded<($($argument,)*)>> for Blocking<F>
        where
            F: Fn($($argument),*) -> R + Send + Sync + 'static,
            R: IntoResponse + OperationOutput + Send + 'static,
            $($argument: FromRequest + OperationInput + Send + 'static,)*
        {
            fn describe(description: &mut Description<'_>) {
                $($argument::describe_input(description);)*
                R::describe_output(description);
            }
            fn name() -> &'static str {
                std::any::type_name::<F>()
            }
        }
    };
}

for_each_arity!(handlers);
