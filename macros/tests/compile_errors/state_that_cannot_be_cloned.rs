//! State without `Clone`, which needs an `Arc` around it.

use highwire::App;
use std::sync::Mutex;

fn main() {
    let _ = App::new().state(Mutex::new(1));
}
