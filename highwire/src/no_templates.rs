//! Without the feature `templates`, no app has any.

use std::rc::Rc;

/// Templates, of which there are none.
#[derive(Clone, Debug)]
pub(crate) enum Templates {}

/// Does nothing.
pub(crate) struct Entered;

/// Does nothing.
#[inline]
pub(crate) fn enter(_: &Option<Rc<Templates>>) -> Entered {
    Entered
}
