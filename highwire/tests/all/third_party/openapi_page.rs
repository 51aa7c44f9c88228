//! The page of an OpenAPI document in Chromium: it fits narrow and wide windows, shows every operation, and its forms send requests.

use super::browser::Browser;
use crate::everything::Site;
use highwire::openapi::{OpenApi, hidden, operation};
use highwire::{App, Bearer, Form, Html, Json, Path, Query};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::mpsc;

/// A thing with a long name: `Longlonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglonglong`.
#[derive(Deserialize, JsonSchema, Serialize)]
struct Thing {
    /// What it is called.
    name: String,
    parts: Vec<Thing>,
}

#[derive(Deserialize, JsonSchema)]
struct Filter {
    wide: bool,
}

/// A page that shows the document's page in frames of several widths, sends the form of one operation in each, and reports for each
/// frame its width, whether its content fits, the number of operations and what the form's answer began with.
const FRAMES: &str = r##"<!doctype html>
<meta charset="utf-8">
<title>Frames</title>
<script>
const widths = [390, 1280];
async function look(frame) {
  const { document: page, innerWidth } = frame;
  for (const details of page.querySelectorAll("details")) details.open = true;
  const root = page.documentElement;
  const fits = root.scrollWidth <= root.clientWidth ? "fits" : `${root.scrollWidth} in ${root.clientWidth}`;
  const form = page.querySelector("#put_things_name form");
  const body = JSON.parse(form.elements.body.value);
  form.elements["path name"].value = "a/b c";
  form.elements["query wide"].value = "true";
  form.elements.authorization.value = "Bearer t";
  form.elements.body.value = JSON.stringify({ ...body, name: "<b>" });
  form.requestSubmit();
  const output = form.querySelector("pre");
  while (!/^\d/.test(output.textContent)) await new Promise((go) => frame.setTimeout(go, 20));
  const [first, rest] = [output.textContent.split("\n")[0].replace(/ \(\d+ ms\)/, ""), output.textContent.split("\n\n")[1]];
  const bold = output.querySelector("b") === null ? "as text" : "as markup";
  const sent = page.querySelector("#post_form form");
  sent.requestSubmit();
  const answer = sent.querySelector("pre");
  while (!/^\d/.test(answer.textContent)) await new Promise((go) => frame.setTimeout(go, 20));
  const form_answer = answer.textContent.split("\n\n")[1];
  return [innerWidth, fits, page.querySelectorAll("section").length, first, JSON.stringify(JSON.parse(rest)), bold, form_answer].join("; ");
}
addEventListener("load", async () => {
  const seen = [];
  for (const [at] of widths.entries()) {
    try { seen.push(await look(frames[at])); } catch (error) { seen.push(String(error)); }
  }
  await fetch("/report", { method: "POST", body: seen.join("\n") });
});
for (const width of widths) document.write(`<iframe width="${width}" height="800" frameborder="0" src="/docs"></iframe>`);
</script>
"##;

#[test]
fn the_page_fits_every_window_and_its_forms_send_requests() {
    let (sender, reports) = mpsc::channel();
    let change = |Path(path): Path<String>, Query(filter): Query<Filter>, token: Bearer, Json(thing): Json<Thing>| {
        let name = format!("{path} {} {} {}", filter.wide, token.token, thing.name);
        Json(Thing { name, parts: Vec::new() })
    };
    let app = App::new()
        .put("/things/{name}", operation(change).tag("things"))
        .get("/a/very/long/path/that/does/not/fit/into/a/narrow/window/of/a/telephone/at/all", operation(|| "yes"))
        .post("/form", operation(|Form(filter): Form<Filter>| format!("form {}", filter.wide)))
        .get("/frames", hidden(|| Html(FRAMES)))
        .post("/report", hidden(move |text: String| _ = sender.send(text)))
        .openapi(OpenApi::new("Things", "1.0").description("Two of them.").page("/docs"));
    let Some(site) = Site::start("auto", app) else { return };
    let Some(browser) = Browser::open("openapi", &site.named("http", "/frames")) else { return };
    let answer = r#"fits; 3; 200 OK; {"name":"a/b c true t <b>","parts":[]}; as text; form false"#;
    assert_eq!(browser.report(&reports), format!("390; {answer}\n1280; {answer}"));
}
