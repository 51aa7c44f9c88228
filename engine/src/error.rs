//! The errors of building and running a server.

use std::fmt;
use std::io;

/// A boxed error of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a server cannot be built or started, or has failed.
#[non_exhaustive]
pub enum Error {
    /// The service that answers requests cannot be created, for example because a route's path is invalid.
    Service(BoxError),
    /// The operating system refused an operation.
    System(io::Error),
    /// Settings or options contradict each other or are invalid, or a thread of the server has panicked.
    Setting(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Service(error) => error.fmt(f),
            Error::System(error) => error.fmt(f),
            Error::Setting(text) => f.write_str(text),
        }
    }
}

/// Writes the same text as `Display`, because a `main` that returns an error prints it with `Debug`.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Service(error) => Some(error.as_ref()),
            Error::System(error) => Some(error),
            Error::Setting(_) => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error::System(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_main_that_fails_says_why_in_words() {
        let error = Error::from(io::Error::new(io::ErrorKind::AddrInUse, "127.0.0.1:80 is taken"));
        assert_eq!(format!("{error:?}"), "127.0.0.1:80 is taken");
    }
}
