//! The errors of all handlers.

use highwire::form::MultipartError;
use highwire::session::SessionError;
use highwire::{IntoResponse, Problem, Response, SpawnBlockingError, StatusCode};

/// What a handler fails with: an answer for the client, or an error that only the log tells.
pub(crate) enum Error {
    Client(Response),
    Server(Box<dyn std::error::Error + Send + Sync>),
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        match self {
            Error::Client(response) => response,
            Error::Server(error) => {
                tracing::error!(%error, "a request failed");
                Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error").into_response()
            }
        }
    }
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error::Client(problem.into_response())
    }
}

impl From<MultipartError> for Error {
    fn from(error: MultipartError) -> Error {
        Error::Client(error.into_response())
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Error {
        // PostgreSQL stores every character but U+0000, which JSON may have.
        if error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "22021") {
            return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "a text has the character U+0000").into();
        }
        Error::Server(error.into())
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Error {
        Error::Server(error.into())
    }
}

impl From<SessionError> for Error {
    fn from(error: SessionError) -> Error {
        Error::Client(error.into_response())
    }
}

impl From<SpawnBlockingError> for Error {
    fn from(error: SpawnBlockingError) -> Error {
        Error::Client(error.into_response())
    }
}

pub(crate) fn not_found() -> Error {
    Problem::new(StatusCode::NOT_FOUND, "there is no such task").into()
}
