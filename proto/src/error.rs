//! Protocol errors, with the side at fault and the status that a server responds with.

use core::fmt;

/// The side that caused an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// The peer sent something that the protocol forbids or our limits refuse.
    Peer,
    /// Our caller tried to send something invalid, or something that cannot be sent now.
    Local,
}

macro_rules! errors {
    ($($(#[$meta:meta])* $name:ident, $culprit:ident, $status:literal, $text:literal;)*) => {
        /// A protocol error.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Error {
            $(#[doc = concat!($text, ".")] $(#[$meta])* $name,)*
        }

        impl Error {
            /// All errors, for tables and tests.
            pub const ALL: &'static [Error] = &[$(Error::$name),*];

            /// Returns the side that is at fault.
            pub const fn culprit(self) -> Culprit {
                match self { $(Error::$name => Culprit::$culprit,)* }
            }

            /// Returns the status that a server responds with; 500 if our caller is at fault.
            pub const fn status(self) -> u16 {
                match self { $(Error::$name => $status,)* }
            }

            /// Returns a description of the error, in lower case and without a full stop.
            pub const fn text(self) -> &'static str {
                match self { $(Error::$name => $text,)* }
            }
        }
    };
}

errors! {
    InvalidMethod, Peer, 400, "the method is not a token followed by one space";
    MethodTooLong, Peer, 501, "the method is longer than any that is implemented here";
    InvalidTarget, Peer, 400, "the request target has a byte or a form that is not allowed";
    InvalidPercentEncoding, Peer, 400, "a percent sign in the request target is not followed by two hex digits";
    TargetTooLong, Peer, 414, "the request target is too long";
    InvalidVersion, Peer, 400, "the HTTP version is malformed";
    UnsupportedVersion, Peer, 505, "this HTTP version is not spoken here";
    InvalidStatus, Peer, 502, "the status line is malformed";
    InvalidLineEnd, Peer, 400, "a line does not end in carriage return and line feed";
    InvalidFieldName, Peer, 400, "a field name is empty or has a byte that is not allowed";
    SpaceBeforeColon, Peer, 400, "white space stands between a field name and its colon";
    ObsoleteFold, Peer, 400, "a line begins with white space";
    InvalidFieldValue, Peer, 400, "a field value has a control byte";
    FieldTooLong, Peer, 431, "a field is too long";
    TooManyFields, Peer, 431, "there are too many fields";
    HeadTooLarge, Peer, 431, "the head is too large";
    MissingHost, Peer, 400, "the Host field is missing";
    RepeatedHost, Peer, 400, "the Host field is repeated";
    InvalidHost, Peer, 400, "the Host field is malformed";
    InvalidContentLength, Peer, 400, "Content-Length is not a number of at most 19 digits";
    RepeatedContentLength, Peer, 400, "Content-Length is repeated";
    LengthAndCoding, Peer, 400, "Content-Length and Transfer-Encoding stand together";
    CodingInOldVersion, Peer, 400, "Transfer-Encoding in an HTTP/1.0 message";
    InvalidTransferEncoding, Peer, 400, "chunked is not the one and final transfer coding";
    UnknownTransferCoding, Peer, 501, "a transfer coding is not implemented";
    UnknownExpectation, Peer, 417, "the expectation is not 100-continue";
    InvalidChunkSize, Peer, 400, "a chunk size is not 1 to 16 hex digits";
    InvalidChunkExtension, Peer, 400, "a chunk extension is malformed";
    ChunkExtensionsTooLong, Peer, 400, "the chunk extensions are too long";
    InvalidChunkEnd, Peer, 400, "a chunk's data is not followed by carriage return and line feed";
    TooManySmallChunks, Peer, 400, "the body comes in too many chunks of a few bytes";
    TrailersTooLarge, Peer, 431, "the trailer section is too large";
    Truncated, Peer, 400, "the connection ended inside a message";
    UnexpectedData, Peer, 400, "the peer sent data where none is allowed";
    TooManyInterims, Peer, 502, "there are too many interim responses";
    NotNow, Local, 500, "this part of a message cannot be sent in the connection's current state";
    InvalidReason, Local, 500, "the reason phrase has a byte that is not allowed";
    InvalidRequest, Local, 500, "the request's method, path and protocol cannot be combined";
    InvalidField, Local, 500, "the method, the target or a field to be sent is malformed";
    InvalidTe, Local, 500, "the field `te` may only have the value `trailers`";
    ReservedField, Local, 500, "the engine writes the fields that frame the message; the caller must not add them";
    LengthMismatch, Local, 500, "the body does not have the announced length";
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl core::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_answered_with_a_client_error_or_501_502_505_and_we_with_500() {
        for &error in Error::ALL {
            match error.culprit() {
                Culprit::Peer => assert!(matches!(error.status(), 400..=499 | 501 | 502 | 505), "{error:?}"),
                Culprit::Local => assert_eq!(error.status(), 500, "{error:?}"),
            }
        }
    }
}
