//! A function in place of a middleware; `middleware::before` makes one of it.

use highwire::{App, Request};

fn check(_: &mut Request<'_>) {}

fn main() {
    let _ = App::new().with(check);
}
