//! Follows the links of a site, with a bounded number of requests at the same time. It needs no server of its own.

use highwire::client::{Bounds, Client, Error, block_on};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// What the crawler knows: the pages that it has seen, each with its status or error, and those that it must visit.
#[derive(Default)]
struct Site {
    seen: BTreeMap<String, Option<String>>,
    queue: VecDeque<String>,
    busy: usize,
}

/// Visits up to `most` pages below `start`, at most `at_once` at the same time. Returns each page with its status or error.
///
/// # Errors
/// Returns an error if the event loop fails.
pub(crate) fn crawl(start: &str, most: usize, at_once: usize) -> highwire::Result<BTreeMap<String, String>> {
    let bounds = Bounds::default().connections(at_once);
    let client = Client::builder().bounds(bounds).timeout(Duration::from_secs(20)).build();
    let client = client.expect("the settings are valid");
    block_on(async {
        let site = Rc::new(RefCell::new(Site::default()));
        site.borrow_mut().add(start, most);
        loop {
            let next = if site.borrow().busy < at_once { site.borrow_mut().queue.pop_front() } else { None };
            let Some(url) = next else {
                if site.borrow().busy == 0 {
                    break;
                }
                highwire::time::sleep(Duration::from_millis(5)).await;
                continue;
            };
            site.borrow_mut().busy += 1;
            let (client, site, start) = (client.clone(), site.clone(), start.to_string());
            highwire::spawn(async move {
                let result = visit(&client, &url).await;
                let mut site = site.borrow_mut();
                site.busy -= 1;
                let said = match result {
                    Ok((status, links)) => {
                        links.iter().filter(|link| link.starts_with(&start)).for_each(|link| site.add(link, most));
                        status
                    }
                    Err(error) => error.to_string(),
                };
                site.seen.insert(url, Some(said));
            });
        }
        let seen = std::mem::take(&mut site.borrow_mut().seen);
        seen.into_iter().map(|(url, said)| (url, said.unwrap_or_default())).collect()
    })
}

impl Site {
    /// Adds a page, unless it is known or there are enough.
    fn add(&mut self, url: &str, most: usize) {
        let url = url.split('#').next().unwrap_or_default();
        if self.seen.len() < most && !self.seen.contains_key(url) {
            self.seen.insert(url.to_string(), None);
            self.queue.push_back(url.to_string());
        }
    }
}

/// Returns the status of a page, and the absolute URLs of its links.
async fn visit(client: &Client, url: &str) -> Result<(String, Vec<String>), Error> {
    let response = client.get(url).send().await?;
    let status = response.status().to_string();
    let origin = url.split('/').take(3).collect::<Vec<_>>().join("/");
    let text = response.text().await?;
    let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let absolute = links.map(|link| if link.starts_with('/') { format!("{origin}{link}") } else { link.to_string() });
    Ok((status, absolute.collect()))
}

#[allow(dead_code, reason = "the tests have the function only")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let start = std::env::args().nth(1).unwrap_or_else(|| "http://127.0.0.1:8080/".to_string());
    for (url, said) in crawl(&start, 100, 8)? {
        println!("{said:20} {url}");
    }
    Ok(())
}
