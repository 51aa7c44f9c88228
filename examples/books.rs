//! A JSON API with an OpenAPI document, made from its routes and types, and a page to read it and to try it.

use highwire::openapi::{self, OpenApi, hidden, operation};
use highwire::{
    App, Bearer, IntoResponse, Json, Path, Problem, Query, Redirect, Response, State, Status, StatusCode, Valid,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The most books that the shelf holds.
const MOST_BOOKS: usize = 1000;

/// A book.
#[derive(Clone, Debug, Deserialize, JsonSchema, Serialize, garde::Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct Book {
    #[garde(length(chars, min = 1, max = 100))]
    title: String,
    /// Who has written it. Several names are in the order of the title page.
    #[garde(length(min = 1, max = 10))]
    #[garde(inner(length(chars, min = 1, max = 100)))]
    authors: Vec<String>,
    /// The year in which it came out.
    #[garde(range(min = 1450, max = 2100))]
    #[serde(default)]
    year: Option<u16>,
    #[garde(skip)]
    #[serde(default)]
    state: Condition,
}

/// How a book looks.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Condition {
    New,
    #[default]
    Used,
    Torn,
}

/// A book with its number.
#[derive(Clone, Debug, JsonSchema, Serialize)]
pub(crate) struct Shelved {
    number: u32,
    #[serde(flatten)]
    book: Book,
}

#[derive(Debug, Deserialize, JsonSchema, garde::Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// A part of an author's name.
    #[garde(skip)]
    author: Option<String>,
    /// Only books that look so.
    #[garde(skip)]
    state: Option<Condition>,
    /// The most books to return.
    #[garde(range(min = 1, max = 100))]
    #[serde(default = "twenty")]
    limit: u32,
}

fn twenty() -> u32 {
    20
}

/// All books by number, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<u32, Book>>);

impl Shelf {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<u32, Book>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn unknown(number: u32) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, format!("no book has the number {number}"))
}

/// Lists books by number.
///
/// Searches ignore nothing: `austen` does not find `Austen`.
#[openapi::docs]
fn list_books(shelf: State<Arc<Shelf>>, Valid(Query(search)): Valid<Query<Search>>) -> Json<Vec<Shelved>> {
    let fits = |book: &Book| {
        search.state.is_none_or(|state| state == book.state)
            && search.author.as_ref().is_none_or(|part| book.authors.iter().any(|name| name.contains(part)))
    };
    let found = shelf.with(|books| {
        let books = books.iter().filter(|(_, book)| fits(book)).take(search.limit as usize);
        books.map(|(&number, book)| Shelved { number, book: book.clone() }).collect()
    });
    Json(found)
}

/// Shows a book.
#[openapi::docs]
fn show_book(shelf: State<Arc<Shelf>>, Path(number): Path<u32>) -> Result<Json<Shelved>, Problem> {
    let book = shelf.with(|books| books.get(&number).cloned());
    book.map(|book| Json(Shelved { number, book })).ok_or_else(|| unknown(number))
}

/// Adds a book.
#[openapi::docs]
fn add_book(
    shelf: State<Arc<Shelf>>,
    Valid(Json(book)): Valid<Json<Book>>,
) -> Result<Status<201, Json<Shelved>>, Problem> {
    shelf.with(|books| {
        if books.len() >= MOST_BOOKS {
            return Err(Problem::new(StatusCode::CONFLICT, "the shelf is full"));
        }
        let number = books.last_key_value().map_or(1, |(last, _)| last.saturating_add(1));
        books.insert(number, book.clone());
        Ok(Status(Json(Shelved { number, book })))
    })
}

/// Removes a book.
#[openapi::docs]
fn remove_book(shelf: State<Arc<Shelf>>, token: Bearer, Path(number): Path<u32>) -> Result<Status<204, ()>, Response> {
    if !token.is("librarian") {
        // With the challenge that a 401 must have.
        return Err(token.refuse());
    }
    let removed = shelf.with(|books| books.remove(&number));
    removed.map(|_| Status(())).ok_or_else(|| unknown(number).into_response())
}

/// Returns the app.
pub(crate) fn app() -> App {
    let books = App::new()
        .get("/", operation!(list_books).tag("books"))
        .post("/", operation!(add_book).tag("books").response::<409, Problem>("The shelf is full."))
        .get("/{number}", operation!(show_book).tag("books").response::<404, Problem>("No book has this number."))
        .delete(
            "/{number}",
            operation!(remove_book).tag("librarians").response::<404, Problem>("No book has this number."),
        );
    App::new()
        .get("/", hidden(|| Redirect::temporary("/docs")))
        .nest("/books", books)
        .openapi(
            OpenApi::new("Books", "1.0")
                .description("The books of a shelf. The librarians' token is `librarian`.")
                .tag("books", "What readers do")
                .tag("librarians", "What needs a token")
                .page("/docs"),
        )
        .problems()
        .state(Arc::<Shelf>::default())
}

#[allow(dead_code, reason = "the tests call `app`")]
fn main() -> highwire::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_string());
    if address == "document" {
        println!("{}", app().openapi_document()?);
        return Ok(());
    }
    let server = app().listen(&address)?;
    for url in server.addresses() {
        eprintln!("listening on http://{url}/");
    }
    server.run()
}
