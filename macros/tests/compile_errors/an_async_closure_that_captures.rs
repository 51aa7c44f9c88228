//! An async closure whose future borrows what the closure has captured. `move || { let name = name.clone(); async move { name } }` works.

use highwire::App;

fn main() {
    let name = String::from("ann");
    let _ = App::new().get("/", async move || name.clone());
}
