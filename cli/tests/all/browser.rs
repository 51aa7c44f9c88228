//! Tests the folder listings of `highwire serve` in Chromium: they fit narrow and wide windows, and their links work.
//!
//! Needs a real kernel, because the browser is a separate program.

use crate::demo::{Demo, HIGHWIRE};
use crate::programs::{Folder, output_text, program};
use std::process::Command;

/// A page that shows a listing in frames of several widths and then prints a line for each frame: its width, whether
/// its content fits, its number of rows, and the status and length of each link's target.
const FRAMES: &str = r#"<!doctype html>
<meta charset="utf-8">
<title>Frames</title>
<script>
const widths = [320, 390, 1280];
addEventListener("load", () => {
  const seen = widths.map((_, at) => {
    const { document: { documentElement: root, links }, innerWidth } = frames[at];
    const found = [...links].map((link) => {
      const request = new XMLHttpRequest();
      request.open("GET", link.href, false);
      request.send();
      return `${request.status} ${request.getResponseHeader("content-length")}`;
    });
    const fits = root.scrollWidth <= root.clientWidth ? "fits" : `${root.scrollWidth} in ${root.clientWidth}`;
    return [innerWidth, fits, root.querySelectorAll("tr").length, found.join(" | ")].join("; ");
  });
  document.body.textContent = seen.join("\n") + "\n";
});
for (const width of widths) document.write(`<iframe width="${width}" height="800" frameborder="0" src="/folder/"></iframe>`);
</script>
"#;

#[test]
fn a_listing_fits_every_window_and_leads_to_its_files() {
    let Some(program) = program(&["chromium", "chromium-browser", "google-chrome", "chrome"]) else { return };
    let folder = Folder::new("browser-listing");
    let root = folder.0.join("root");
    std::fs::create_dir_all(root.join("folder/a folder")).expect("a folder");
    std::fs::write(root.join("hello"), "Hello, World!").expect("a file");
    std::fs::write(root.join("frames.html"), FRAMES).expect("a file");
    // Names wider than a window, and names that must be escaped.
    let names = ["x".repeat(200), "word ".repeat(40), "日本".repeat(30), "a & <b> 50% #1?.txt".into(), "it's".into()];
    for (number, name) in names.iter().enumerate() {
        std::fs::write(root.join("folder").join(name.trim()), "x".repeat(number + 10)).expect("a file");
    }
    let mut command = Command::new(HIGHWIRE);
    command.arg("serve").arg(&root).args(["--listen", "127.0.0.1:0", "--listing"]);
    let Some(demo) = Demo::of(command, "auto") else { return };
    let data = format!("--user-data-dir={}", folder.path("data"));
    let url = demo.url("/frames.html");
    let mut flags = vec!["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];
    flags.extend(["--disable-background-networking", "--disable-component-update", "--disable-sync", &data]);
    flags.extend(["--dump-dom", &url]);
    let page = output_text(&program, &flags);
    // The listing has a row for the parent folder, and then one for each name in order.
    let listing = std::fs::read_dir(root.join("folder")).expect("a folder").count();
    for width in [320, 390, 1280] {
        let line = page.lines().find_map(|line| line.split_once(&format!("{width}; fits; "))).map(|(_, rest)| rest);
        let found = line.unwrap_or_else(|| panic!("no window of width {width}, or its content is wider: {page}"));
        let (rows, links) = found.split_once("; ").expect("two parts");
        assert_eq!(rows, (listing + 1).to_string(), "{found}");
        let links: Vec<&str> = links.split(" | ").collect();
        assert!(links.iter().all(|link| link.starts_with("200 ")), "{found}");
        // Names are sorted by their bytes: `a & `, `it's`, `word`, `xxx`, `日本`.
        assert_eq!(links[2..], ["200 13", "200 14", "200 11", "200 10", "200 12"], "{found}");
    }
}
