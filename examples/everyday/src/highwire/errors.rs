//! Any error with `?`: 500, and a line in the log with what has failed.

use highwire::{App, IntoResponse, Problem, Response, StatusCode, blocking};

struct Error(Box<dyn std::error::Error + Send + Sync>);

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Error {
    fn from(error: E) -> Error {
        Error(error.into())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        tracing::error!(error = %self.0, "a request failed");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error").into_response()
    }
}

fn count() -> Result<String, Error> {
    let number: u32 = std::fs::read_to_string("/proc/sys/kernel/ostype")?.trim().parse()?;
    Ok(number.to_string())
}

pub fn app() -> App {
    App::new().get("/count", blocking(count))
}
