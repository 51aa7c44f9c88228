//! A closure with state of its own, which requests on all threads would change.

use highwire::App;

fn main() {
    let mut count = 0;
    let _ = App::new().get("/", move || {
        count += 1;
        count.to_string()
    });
}
