//! Without the feature `hyper`, services get no upgrades.

use highwire_engine::raw::Switch;
use http::StatusCode;
use http::request::Parts;

/// An upgrade, which is never offered.
pub(super) enum Offer {}

pub(super) fn offer(_: &mut Parts, _: &crate::Upgrade) -> Option<Offer> {
    None
}

impl Offer {
    pub(super) fn answered(self, _: StatusCode) -> Option<Switch> {
        match self {}
    }
}
