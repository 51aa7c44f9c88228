//! What the document says of a handler. Handlers of all kinds use it, so it knows none.

use super::description::{Description, Status};

/// Adds to an operation.
type Describe = fn(&mut Description<'_>);

/// What the document says of a route.
pub(crate) enum Documentation {
    /// Nothing, although the route has a handler of this name.
    Missing(&'static str),
    /// The route is left out.
    Hidden,
    Operation(Box<Documented>),
}

/// What a program says of an operation besides its types.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    pub(super) summary: Option<String>,
    pub(super) description: Option<String>,
    pub(super) id: Option<&'static str>,
    pub(super) tags: Vec<&'static str>,
    pub(super) security: Vec<&'static str>,
    pub(super) is_deprecated: bool,
    pub(super) responses: Vec<Further>,
}

/// Further responses of one status: what they are, their type, and when they come.
#[derive(Clone, Debug)]
pub(super) struct Further {
    pub(super) status: u16,
    pub(super) describe: Describe,
    pub(super) text: &'static str,
}

/// An operation: its handler's name, what its types say, and what the program says of it.
pub(crate) struct Documented {
    pub(super) handler: &'static str,
    pub(super) describe: Describe,
    pub(super) about: About,
}

impl Documented {
    pub(super) fn describe(&self, description: &mut Description<'_>) {
        (self.describe)(description);
        for Further { status, describe, text } in &self.about.responses {
            description.with_status(Status::Code(*status), Some(text), describe);
        }
    }
}
