//! A closure that captures what must stay on its thread.

use highwire::{App, check_handler};
use std::rc::Rc;

fn main() {
    let count = Rc::new(1);
    let _ = App::new().get("/", check_handler!(move || count.to_string()));
}
