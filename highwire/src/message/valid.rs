//! Checked values: extractors whose values keep the rules of the crate garde, and forms that come with their errors.

use crate::message::provided::Provided;
use crate::message::request::{BodyUse, FromRequest, Request};
use crate::{Form, IntoResponse, Json, Path, Problem, Query, Response, StatusCode};
use garde::Validate;

/// The most errors that a response lists.
const MOST_ERRORS: usize = 32;

/// An extractor of a value that must also keep rules: `Valid<Json<T>>`, and so for [`Query`], [`Form`] and [`Path`]. The rules are
/// those that `T` derives from `garde::Validate`. A value that breaks some is refused with 422 and a [`Problem`], whose member
/// `errors` has the place of each as a JSON pointer (RFC 6901), and what is wrong; at most 32. The
/// pointer has the names of the Rust fields, not those that serde gives them.
///
/// ```
/// use garde::Validate;
/// use highwire::testing::Client;
/// use highwire::{App, Json, Valid};
///
/// #[derive(serde::Deserialize, Validate)]
/// struct Order {
///     #[garde(length(min = 1))]
///     item: String,
///     #[garde(range(max = 9))]
///     count: u32,
/// }
///
/// let app = App::new().post("/orders", |Valid(Json(order)): Valid<Json<Order>>| format!("{} {}", order.count, order.item));
/// let mut client = Client::new(app)?;
/// assert_eq!(client.post("/orders").json(&serde_json::json!({"item": "tea", "count": 2})).send().text(), "2 tea");
/// let refused = client.post("/orders").json(&serde_json::json!({"item": "tea", "count": 20})).send();
/// assert_eq!(refused.status(), 422);
/// assert!(refused.text().contains(r#""errors":[{"pointer":"/count","detail":"greater than 9"}]"#), "{}", refused.text());
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Valid<E>(pub E);

/// The extractors whose values [`Valid`] checks.
pub trait Checkable: FromRequest {
    /// The value.
    type Value;
    /// What the refusal names: `body`, `query` or `path`.
    #[doc(hidden)]
    const PLACE: &'static str;
    #[doc(hidden)]
    fn value(&self) -> &Self::Value;
}

macro_rules! checkable {
    ($($extractor:ident $place:literal)*) => {$(
        impl<T> Checkable for $extractor<T>
        where
            $extractor<T>: FromRequest,
        {
            type Value = T;
            const PLACE: &'static str = $place;
            fn value(&self) -> &T {
                &self.0
            }
        }
    )*};
}

checkable!(Json "body" Form "body" Query "query" Path "path");

impl<E> FromRequest for Valid<E>
where
    E: Checkable,
    E::Value: Validate<Context = ()>,
{
    const BODY: BodyUse = E::BODY;

    fn from_request(request: &mut Request<'_>) -> Result<Valid<E>, Response> {
        let extracted = E::from_request(request)?;
        match extracted.value().validate() {
            Ok(()) => Ok(Valid(extracted)),
            Err(report) => Err(refusal(E::PLACE, &Broken::all(&report)).into_response()),
        }
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        E::check(provided)
    }
}

/// A rule that a value has broken.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Broken {
    /// The place in the value, as a JSON pointer (RFC 6901), such as `/items/2/price`. It is empty for the whole value.
    pub pointer: String,
    /// What is wrong, for the user.
    pub detail: String,
}

impl Broken {
    fn all(report: &garde::Report) -> Vec<Broken> {
        let broken = |(path, error): &(garde::Path, garde::Error)| Broken {
            pointer: pointer(&path.to_string()),
            detail: error.message().to_string(),
        };
        report.iter().take(MOST_ERRORS).map(broken).collect()
    }
}

/// Turns a path such as `items[2].price` into a JSON pointer.
fn pointer(path: &str) -> String {
    let steps = path.split(['.', '[']).map(|step| step.trim_end_matches(']')).filter(|step| !step.is_empty());
    steps.map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
}

fn refusal(place: &'static str, broken: &[Broken]) -> Problem {
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, format!("the {place} breaks rules"))
        .with("in", place)
        .with_json("errors", &broken)
}

/// A form with the rules that its values break, for a handler that shows the form again with its errors. It is refused only if it
/// is no form of `T` at all, as [`Form`] is.
///
/// ```
/// use garde::Validate;
/// use highwire::testing::Client;
/// use highwire::{App, Checked, Form};
///
/// #[derive(serde::Deserialize, Validate)]
/// struct Entry {
///     #[garde(length(min = 3))]
///     name: String,
/// }
///
/// let app = App::new().post("/entries", |Checked { value: Form(entry), errors }: Checked<Form<Entry>>| match errors.first() {
///     None => format!("thank you, {}", entry.name),
///     Some(error) => format!("{}: {} ({})", entry.name, error.detail, error.pointer),
/// });
/// let mut client = Client::new(app)?;
/// assert_eq!(client.post("/entries").form(&[("name", "Ann")]).send().text(), "thank you, Ann");
/// assert_eq!(client.post("/entries").form(&[("name", "A")]).send().text(), "A: length is lower than 3 (/name)");
/// # Ok::<(), highwire::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked<E> {
    /// The extracted value, such as a [`Form`].
    pub value: E,
    /// The rules that it breaks, at most 32; empty if it keeps all.
    pub errors: Vec<Broken>,
}

impl<E> FromRequest for Checked<E>
where
    E: Checkable,
    E::Value: Validate<Context = ()>,
{
    const BODY: BodyUse = E::BODY;

    fn from_request(request: &mut Request<'_>) -> Result<Checked<E>, Response> {
        let value = E::from_request(request)?;
        let errors = value.value().validate().err().map(|report| Broken::all(&report)).unwrap_or_default();
        Ok(Checked { value, errors })
    }

    fn check(provided: &Provided<'_>) -> Result<(), String> {
        E::check(provided)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_json_pointers() {
        for (path, expected) in [
            ("", ""),
            ("name", "/name"),
            ("items[2].price", "/items/2/price"),
            ("a[0][1]", "/a/0/1"),
            ("a/b.c~d", "/a~1b/c~0d"),
        ] {
            assert_eq!(pointer(path), expected, "{path}");
        }
    }
}
