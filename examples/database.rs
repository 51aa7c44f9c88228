//! Queries a database with sqlx, which needs tokio. Other libraries that need tokio work in the same way.

use highwire::{App, IntoResponse, Json, Path, PerWorker, Response, StatusCode};
use sqlx::sqlite::{SqlitePool, SqlitePoolOptions};

const TABLE: &str = "create table if not exists notes (id integer primary key, text text not null)";

/// Returns the app. Each worker has its own pool, so no connection is shared between workers. The pool is made on the
/// worker's thread, where libraries find the runtime of the feature `tokio`.
pub(crate) fn app(address: &'static str) -> App {
    App::new().per_worker(move || pool(address)).post("/notes", add).get("/notes/{id}", show)
}

fn pool(address: &str) -> SqlitePool {
    // Keeps one connection open, because a database in memory lasts only as long as its connection.
    let options = SqlitePoolOptions::new().max_connections(1).idle_timeout(None).max_lifetime(None);
    let prepare = options
        .after_connect(|connection, _| Box::pin(async move { sqlx::query(TABLE).execute(connection).await.map(drop) }));
    prepare.connect_lazy(address).expect("an address of a database")
}

async fn add(PerWorker(database): PerWorker<SqlitePool>, text: String) -> Result<(StatusCode, Json<i64>), Failed> {
    let insert = sqlx::query("insert into notes (text) values (?)").bind(text);
    let id = insert.execute(&*database).await?.last_insert_rowid();
    Ok((StatusCode::CREATED, Json(id)))
}

async fn show(PerWorker(database): PerWorker<SqlitePool>, Path(id): Path<i64>) -> Result<Option<String>, Failed> {
    Ok(sqlx::query_scalar("select text from notes where id = ?").bind(id).fetch_optional(&*database).await?)
}

/// An error of the database. It is logged; the client gets only 500.
struct Failed(sqlx::Error);

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Failed {
        Failed(error)
    }
}

impl IntoResponse for Failed {
    fn into_response(self) -> Response {
        eprintln!("database error: {}", self.0);
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

#[allow(dead_code, reason = "the tests have the routes only")]
fn main() -> highwire::Result<()> {
    app("sqlite:notes.db?mode=rwc").listen("127.0.0.1:8080")?.run()
}
