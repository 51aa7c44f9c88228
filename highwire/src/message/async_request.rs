//! Extractors that wait, such as for a database.

use crate::Response;
use crate::message::provided::Provided;
use crate::message::request::{BodyUse, FromRequest, Request, one_body};

/// A type that an async handler can take as an argument although making it takes time: a user whom a database knows, a token that
/// another server checks. It is made in two steps, because a request is only borrowed: an extractor takes what is needed from the
/// request, and a future makes the value of it. The arguments of a handler are made one after the other; the first refusal is the
/// response. Every [`FromRequest`] is such a type. A type that a request may lack takes optional parts, such as `Option<Bearer>`.
///
/// ```
/// use highwire::testing::Client;
/// use highwire::{App, AsyncFromRequest, Bearer, IntoResponse, Response, State, StatusCode};
/// # #[derive(Clone)]
/// # struct Users;
/// # impl Users {
/// #     async fn of_token(&self, token: &str) -> Option<String> { (token == "x1y2").then(|| "ann".to_string()) }
/// # }
///
/// struct User(String);
///
/// impl AsyncFromRequest for User {
///     type Parts = (Bearer, State<Users>);
///
///     async fn from_parts((bearer, users): Self::Parts) -> Result<User, Response> {
///         let name = users.of_token(&bearer.token).await;
///         name.map(User).ok_or_else(|| bearer.refuse())
///     }
/// }
///
/// let app = App::new().get("/me", async |User(name): User| name).state(Users);
/// let mut client = Client::new(app)?;
/// assert_eq!(client.get("/me").header("authorization", "Bearer x1y2").send().text(), "ann");
/// assert_eq!(client.get("/me").header("authorization", "Bearer x").send().status(), 401);
/// # Ok::<(), highwire::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be taken from a request",
    note = "handlers take extractors such as `Path`, `Query`, `Json`, `State`, `Body`, `Bytes` or `Reply`; `AsyncFromRequest` makes one of your own types one for async handlers"
)]
pub trait AsyncFromRequest: Sized {
    /// What is taken from the request: an extractor, or a tuple of extractors.
    type Parts: FromRequest;

    /// Makes the value.
    ///
    /// # Errors
    /// Returns the response to send instead of calling the handler.
    fn from_parts(parts: Self::Parts) -> impl Future<Output = Result<Self, Response>>;
}

impl<T: FromRequest> AsyncFromRequest for T {
    type Parts = T;

    async fn from_parts(parts: T) -> Result<T, Response> {
        Ok(parts)
    }
}

macro_rules! tuples {
    ($(($($part:ident)*))*) => {$(
        impl<$($part: FromRequest),*> FromRequest for ($($part,)*) {
            const BODY: BodyUse = one_body(&[$($part::BODY),*]);

            fn from_request(request: &mut Request<'_>) -> Result<Self, Response> {
                Ok(($($part::from_request(request)?,)*))
            }

            fn check(provided: &Provided<'_>) -> Result<(), String> {
                $($part::check(provided)?;)*
                Ok(())
            }
        }
    )*};
}

tuples!((A) (A B) (A B C) (A B C D));
