//! What can go wrong in building and running a server.

use std::fmt;
use std::io;

/// Any error.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server could not be built, started or kept running.
#[non_exhaustive]
pub enum Error {
    /// What answers requests cannot be made: an app's route has a path that cannot be used, say.
    Service(BoxError),
    /// The system refused something; the text says what and where.
    System(io::Error),
    /// Two settings contradict each other, or one is out of range.
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

/// In words, too: a `main` that returns an error shows it so, and whoever starts the program reads it.
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
