//! reqwest, over HTTP/1.

use clients::{Failure, arguments, measure};

fn main() -> Result<(), Failure> {
    let arguments = arguments()?;
    let client = reqwest::Client::builder().tcp_nodelay(true).no_proxy().build()?;
    let url = arguments.url.clone();
    measure(&arguments, move |_| {
        let (client, url) = (client.clone(), url.clone());
        async move { Ok(client.get(&url).send().await?.bytes().await?.len()) }
    })
}
