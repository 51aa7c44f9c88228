//! Tests which files of a real folder are served, which are not, and under which conditions, through the test client.

use crate::folder::{Place, bytes};
use highwire::testing::{Client, TestResponse};
use highwire::{App, Files, Method, StatusCode};
use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

/// The date that [`Place::write`] sets.
const DATE_TEXT: &str = "Fri, 15 Jan 2021 08:00:00 GMT";
/// One second before [`DATE_TEXT`].
const BEFORE: &str = "Fri, 15 Jan 2021 07:59:59 GMT";
/// One second after [`DATE_TEXT`].
const AFTER: &str = "Fri, 15 Jan 2021 08:00:01 GMT";

fn client(files: Files) -> Client {
    Client::new(App::new().files("/static", files)).expect("an app")
}

fn ask(client: &mut Client, method: Method, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let call = client.request(method, path);
    fields.iter().fold(call, |call, (name, value)| call.header(name, value)).send()
}

/// The length in bytes of the longest file that is kept in memory.
const SMALL: usize = 64 * 1024;

#[test]
fn files_of_every_size_come_whole_the_first_time_and_again() {
    let place = Place::new("sizes");
    let lengths = [0, 1, 1000, 16_384, 16_385, SMALL - 1, SMALL, SMALL + 1, 200_000, 1_000_003];
    for length in lengths {
        place.write(&format!("{length}.txt"), bytes(length));
    }
    for files in [place.files(), place.files().cache_bytes(0)] {
        let mut client = client(files);
        for length in lengths.iter().chain(&lengths) {
            let path = format!("/static/{length}.txt");
            let answer = client.get(&path).send();
            assert_eq!(answer.status(), 200, "{path}");
            assert!(answer.bytes() == bytes(*length), "{path}: {} bytes", answer.bytes().len());
            for (name, value) in [
                ("content-type", "text/plain; charset=utf-8"),
                ("last-modified", DATE_TEXT),
                ("accept-ranges", "bytes"),
                ("content-length", &length.to_string()),
            ] {
                assert_eq!(answer.header(name), value, "{path}");
            }
            assert!(answer.header("etag").starts_with('"'), "{path}: a strong tag");
            let head = ask(&mut client, Method::HEAD, &path, &[("range", "bytes=0-0")]);
            assert_eq!((head.status(), head.bytes()), (StatusCode::OK, &b""[..]), "{path}");
            assert_eq!(head.headers().get("etag"), answer.headers().get("etag"));
            assert_eq!(head.header("content-length"), length.to_string());
        }
    }
}

/// The fields of a request, and the expected status, body and Content-Range.
type Case<'a> = (&'a [(&'a str, &'a str)], u16, &'a [u8], &'a str);

#[test]
fn conditions_and_ranges() {
    let place = Place::new("terms");
    for (length, name) in [(1000, "small"), (200_000, "large")] {
        place.write(name, bytes(length));
        let mut client = client(place.files());
        let path = format!("/static/{name}");
        let whole = bytes(length);
        let tag = client.get(&path).send().header("etag").to_string();
        let weak = format!("W/{tag}");
        let list = format!("\"x\", {weak}");
        let last = format!("bytes {}-{}/{length}", length - 5, length - 1);
        let cases: &[Case<'_>] = &[
            (&[("if-none-match", &tag)], 304, b"", ""),
            (&[("if-none-match", &weak)], 304, b"", ""),
            (&[("if-none-match", &list)], 304, b"", ""),
            (&[("if-none-match", "\"x\""), ("if-none-match", &tag)], 304, b"", ""),
            (&[("if-none-match", "*")], 304, b"", ""),
            (&[("if-none-match", "\"x\"")], 200, &whole, ""),
            (&[("if-none-match", "\"x\""), ("if-modified-since", AFTER)], 200, &whole, ""),
            (&[("if-modified-since", DATE_TEXT)], 304, b"", ""),
            (&[("if-modified-since", AFTER)], 304, b"", ""),
            (&[("if-modified-since", BEFORE)], 200, &whole, ""),
            (&[("if-modified-since", "then")], 200, &whole, ""),
            (&[("if-match", &tag)], 200, &whole, ""),
            (&[("if-match", "*")], 200, &whole, ""),
            (&[("if-match", &weak)], 412, b"the file is not what it was\n", ""),
            (&[("if-match", "\"x\"")], 412, b"the file is not what it was\n", ""),
            (&[("if-match", "\"x\""), ("if-none-match", &tag)], 412, b"the file is not what it was\n", ""),
            (&[("if-unmodified-since", DATE_TEXT)], 200, &whole, ""),
            (&[("if-unmodified-since", BEFORE)], 412, b"the file is not what it was\n", ""),
            (&[("range", "bytes=0-0")], 206, &whole[..1], "bytes 0-0/LENGTH"),
            (&[("range", "bytes=10-99")], 206, &whole[10..100], "bytes 10-99/LENGTH"),
            (&[("range", "bytes=0-")], 206, &whole, "bytes 0-LAST/LENGTH"),
            (&[("range", "bytes=-5")], 206, &whole[length - 5..], &last),
            (&[("range", "bytes=300-399,200-299,250-310")], 206, &whole[200..400], "bytes 200-399/LENGTH"),
            (&[("range", "bytes=1000000-")], 416, b"the file has no such part\n", "bytes */LENGTH"),
            (&[("range", "lines=1-2")], 200, &whole, ""),
            (&[("range", "bytes=2-1")], 200, &whole, ""),
            (&[("range", "bytes=0-0"), ("if-range", &tag)], 206, &whole[..1], "bytes 0-0/LENGTH"),
            (&[("range", "bytes=0-0"), ("if-range", DATE_TEXT)], 206, &whole[..1], "bytes 0-0/LENGTH"),
            (&[("range", "bytes=0-0"), ("if-range", &weak)], 200, &whole, ""),
            (&[("range", "bytes=0-0"), ("if-range", "\"x\"")], 200, &whole, ""),
            (&[("range", "bytes=0-0"), ("if-range", AFTER)], 200, &whole, ""),
            (&[("range", "bytes=1000000-"), ("if-range", "\"x\"")], 200, &whole, ""),
            (&[("range", "bytes=0-0"), ("if-none-match", &tag)], 304, b"", ""),
            (&[("range", "bytes=0-0"), ("if-match", "\"x\"")], 412, b"the file is not what it was\n", ""),
        ];
        for (fields, status, body, place) in cases {
            let answer = ask(&mut client, Method::GET, &path, fields);
            assert_eq!(answer.status(), *status, "{name} {fields:?}");
            assert!(answer.bytes() == *body, "{name} {fields:?}: {} bytes", answer.bytes().len());
            let place = place.replace("LENGTH", &length.to_string()).replace("LAST", &(length - 1).to_string());
            assert_eq!(answer.header("content-range"), place, "{name} {fields:?}");
            if matches!(status, 200 | 206 | 304) {
                assert_eq!((answer.header("etag"), answer.header("last-modified")), (&*tag, DATE_TEXT), "{fields:?}");
            }
            assert_eq!(answer.header("content-type").is_empty(), *status == 304, "{fields:?}");
        }
    }
}

#[test]
fn several_parts_come_as_multipart() {
    let place = Place::new("parts");
    for (length, name) in [(1000, "small.html"), (200_000, "large.html")] {
        place.write(name, bytes(length));
        let whole = bytes(length);
        let mut client = client(place.files());
        let answer = client.get(&format!("/static/{name}")).header("range", "bytes=0-0, 500-599, -10").send();
        assert_eq!(answer.status(), 206);
        let boundary =
            answer.header("content-type").strip_prefix("multipart/byteranges; boundary=").expect("a boundary");
        assert_eq!(answer.headers().get_all("content-type").iter().count(), 1);
        let mut expected = Vec::new();
        for (number, (start, end)) in [(0, 1), (500, 600), (length - 10, length)].into_iter().enumerate() {
            let line_end = if number == 0 { "" } else { "\r\n" };
            let head = format!(
                "{line_end}--{boundary}\r\nContent-Type: text/html; charset=utf-8\r\n\
                Content-Range: bytes {start}-{}/{length}\r\n\r\n",
                end - 1
            );
            expected.extend_from_slice(head.as_bytes());
            expected.extend_from_slice(&whole[start..end]);
        }
        expected.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(answer.bytes() == expected, "{}", String::from_utf8_lossy(answer.bytes()));
        assert_eq!(answer.header("content-length"), expected.len().to_string());
        let many = format!("bytes={}", (0..50).map(|part| format!("{0}-{0}", part * 10)).collect::<Vec<_>>().join(","));
        let answer = client.get(&format!("/static/{name}")).header("range", many).send();
        assert!(answer.status() == 200 && answer.bytes() == whole, "very many parts: the whole file is sent");
    }
}

#[test]
fn siblings_are_sent_to_those_who_take_them() {
    let place = Place::new("siblings");
    place.write("a.js", "itself");
    place.write("a.js.br", "in brotli");
    place.write("a.js.gz", "in gzip");
    place.write("b.js", "alone");
    place.write("c.js", bytes(SMALL + 1));
    place.write("c.js.zst", "large in zstd");
    fs::create_dir(place.root().join("b.js.gz")).expect("a folder");
    let mut compressed = client(place.files().precompressed());
    for (path, accepts, coding, body) in [
        ("a.js", "gzip, br", "br", "in brotli"),
        ("a.js", "gzip, br;q=0.5", "gzip", "in gzip"),
        ("a.js", "zstd, gzip;q=0.1", "gzip", "in gzip"),
        ("a.js", "zstd", "", "itself"),
        ("a.js", "identity, br;q=0.5", "", "itself"),
        ("b.js", "gzip", "", "alone"),
        ("c.js", "zstd, gzip", "zstd", "large in zstd"),
    ] {
        for _ in 0..2 {
            let answer = compressed.get(&format!("/static/{path}")).header("accept-encoding", accepts).send();
            assert_eq!((answer.header("content-encoding"), answer.text()), (coding, body), "{path} {accepts}");
            assert_eq!(answer.header("content-type"), "text/javascript; charset=utf-8");
            assert_eq!(answer.header("vary"), "accept-encoding");
            assert_eq!(answer.header("etag").ends_with(&format!("-{coding}\"")), !coding.is_empty());
            let again = [("accept-encoding", accepts), ("if-none-match", answer.header("etag"))];
            let again = ask(&mut compressed, Method::GET, &format!("/static/{path}"), &again);
            assert_eq!((again.status().as_u16(), again.header("vary")), (304, "accept-encoding"), "{path} {accepts}");
        }
    }
    let tag = |client: &mut Client, accepts| {
        let answer = client.get("/static/a.js").header("accept-encoding", accepts).send();
        answer.header("etag").to_string()
    };
    assert_ne!(tag(&mut compressed, "br"), tag(&mut compressed, "identity"));
    let large = compressed.get("/static/c.js").header("accept-encoding", "br").send();
    assert!(large.bytes() == bytes(SMALL + 1) && large.header("content-encoding").is_empty());
    // Without `precompressed`, siblings are not sent.
    let answer = client(place.files()).get("/static/a.js").header("accept-encoding", "br").send();
    assert_eq!((answer.text(), answer.header("content-encoding"), answer.header("vary")), ("itself", "", ""));
    // A sibling that is requested by its own name is a file like any other.
    let answer = compressed.get("/static/a.js.gz").header("accept-encoding", "gzip").send();
    assert_eq!((answer.header("content-type"), answer.header("content-encoding")), ("application/gzip", ""));
}

#[test]
fn folders_have_an_index_or_a_listing_and_a_slash() {
    let place = Place::new("folders");
    place.write("index.html", "the root");
    place.write("inner/index.html", "inner");
    place.write("bare/<b>.txt", "1");
    place.write("bare/a&b.txt", "22");
    place.write("bare/.hidden", "3");
    place.write("other/main.htm", "other");
    let mut plain = client(place.files());
    for (path, status, location) in [
        ("/static", 308, "/static/"),
        ("/static?a=//b", 308, "/static/?a=//b"),
        ("/static/", 200, ""),
        ("/static/inner", 308, "/static/inner/"),
        ("/static/inner?x=1&y=%2f", 308, "/static/inner/?x=1&y=%2f"),
        ("/static/./bare/../inner", 308, "/static/inner/"),
        ("/static/inner/", 200, ""),
        ("/static/inner//", 404, ""),
        ("/static//inner", 404, ""),
        ("/static/inner/index.html/", 404, ""),
        ("/static/bare/", 404, ""),
        ("/static/nothing", 404, ""),
        ("/static/nothing/", 404, ""),
        ("/staticx", 404, ""),
    ] {
        let answer = plain.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.header("location")), (status, location), "{path}");
    }
    assert_eq!(plain.get("/static/inner/").send().text(), "inner");
    let mut listing = client(place.files().listing());
    let answer = listing.get("/static/bare/").send();
    assert_eq!((answer.status().as_u16(), answer.header("content-type")), (200, "text/html; charset=utf-8"));
    let page = answer.text();
    let names = ["href=\"../\"", "href=\"./%3Cb%3E.txt\">&lt;b&gt;.txt<", "href=\"./a%26b.txt\">a&amp;b.txt<"];
    let places: Vec<_> = names.iter().map(|name| page.find(name).expect("it is on the page")).collect();
    assert!(places.is_sorted() && !page.contains(".hidden"), "{page}");
    assert_eq!(listing.get("/static/bare/%3Cb%3E.txt").send().text(), "1");
    assert_eq!(ask(&mut listing, Method::HEAD, "/static/bare/", &[]).status(), 200);
    assert_eq!(listing.get("/static/inner/").send().text(), "inner");
    assert_eq!(client(place.files().index("main.htm")).get("/static/other/").send().text(), "other");
    assert_eq!(client(place.files().without_index()).get("/static/").send().status(), 404);
}

#[test]
fn a_folder_at_the_root_leads_to_no_other_host() {
    let place = Place::new("hosts");
    place.write("evil.example/index.html", "a folder that is called like a host");
    let mut client = Client::new(App::new().files("/", place.files())).expect("an app");
    for (path, status, location) in [
        ("/evil.example", 308, "/evil.example/"),
        ("//evil.example", 404, ""),
        ("/.//evil.example", 404, ""),
        ("/a/..//evil.example", 404, ""),
        ("/%2Fevil.example", 404, ""),
        ("/%5Cevil.example", 404, ""),
        ("/%2e/evil.example", 308, "/evil.example/"),
    ] {
        let answer = client.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.header("location")), (status, location), "{path}");
    }
}

#[test]
fn settings_change_what_is_said_and_served() {
    let place = Place::new("settings");
    for path in ["index.html", "404.html", "a.css", "assets/b.css", ".hidden/x", "c.Xyz"] {
        place.write(path, path);
    }
    let files = place.files().cache_control("assets/*", "immutable").cache_control("*.css", "no-cache");
    let files = files.media_type("xyz", "chemical/x-xyz").hidden();
    let with_pages = files.clone().error_page(StatusCode::NOT_FOUND, "404.html");
    let mut client_of_pages = client(with_pages.clone());
    for (path, status, cache_control, content_type, body) in [
        ("/static/a.css", 200, "no-cache", "text/css; charset=utf-8", "a.css"),
        ("/static/assets/b.css", 200, "immutable", "text/css; charset=utf-8", "assets/b.css"),
        ("/static/c.Xyz", 200, "", "chemical/x-xyz", "c.Xyz"),
        ("/static/.hidden/x", 200, "", "application/octet-stream", ".hidden/x"),
        ("/static/nothing", 404, "", "text/html; charset=utf-8", "404.html"),
        ("/static/nothing/", 404, "", "text/html; charset=utf-8", "404.html"),
        ("/static/no//name", 404, "", "text/html; charset=utf-8", "404.html"),
    ] {
        let answer = client_of_pages.get(path).send();
        let said = (answer.status().as_u16(), answer.header("cache-control"), answer.header("content-type"));
        assert_eq!((said, answer.text()), ((status, cache_control, content_type), body), "{path}");
    }
    assert_eq!(client(place.files()).get("/static/.hidden/x").send().status(), 404, "hidden by default");
    let mut single = client(with_pages.single_page("index.html"));
    for (path, status, body) in [
        ("/static/users/7", 200, "index.html"),
        ("/static/users/7/", 200, "index.html"),
        ("/static/a.css", 200, "a.css"),
        ("/static/gone.css", 404, "404.html"),
    ] {
        let answer = single.get(path).send();
        assert_eq!((answer.status().as_u16(), answer.text()), (status, body), "{path}");
    }
    place.write("users/7", "a file by now");
    assert_eq!(single.get("/static/users/7").send().text(), "a file by now", "the page in its place is not kept");
}

#[test]
fn a_page_for_an_error_says_in_which_coding_it_is() {
    let place = Place::new("coded_page");
    place.write("404.html", "nothing here");
    place.write("404.html.br", "as if by Brotli");
    let mut client = client(place.files().precompressed().error_page(StatusCode::NOT_FOUND, "404.html"));
    for (accepted, coding, body) in [("br", "br", "as if by Brotli"), ("identity", "", "nothing here")] {
        let answer = client.get("/static/nothing").header("accept-encoding", accepted).send();
        let said = (answer.status().as_u16(), answer.header("content-encoding"), answer.header("vary"));
        assert_eq!((said, answer.text()), ((404, coding, "accept-encoding"), body));
        assert_eq!(answer.header("content-type"), "text/html; charset=utf-8");
    }
}

#[test]
fn other_methods_are_not_allowed() {
    let place = Place::new("methods");
    place.write("a", "a");
    let mut client = client(place.files());
    for path in ["/static/a", "/static/", "/static/nothing"] {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            let answer = ask(&mut client, method, path, &[]);
            assert_eq!((answer.status().as_u16(), answer.header("allow")), (405, "GET, HEAD, OPTIONS"), "{path}");
        }
    }
    assert_eq!(ask(&mut client, Method::OPTIONS, "/static/a", &[]).status(), 204);
}

#[test]
fn mistakes_are_told_when_the_app_is_built() {
    let place = Place::new("mistakes");
    for (files, expected) in [
        (Files::new(place.0.join("nothing")), "nothing"),
        (place.files().cache_control("*", "a\nb"), "is not a valid Cache-Control for *"),
    ] {
        for app in [App::new().files("/", files.clone()), App::new().nest("/x", App::new().files("/y", files))] {
            let error = Client::new(app).expect_err("a mistake").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}

/// The clock of the test is virtual, but the dates of the files are real.
#[test]
fn a_changed_file_is_seen_within_a_second() {
    let place = Place::new("changes");
    place.write("a.txt", "first");
    place.write("a.txt.gz", "first in gzip");
    let mut client = client(place.files().precompressed());
    let mut text = |after: Duration, accepts: &str| {
        client.advance(after);
        let answer = client.get("/static/a.txt").header("accept-encoding", accepts).send();
        (answer.status().as_u16(), answer.text().to_string())
    };
    let (now, second) = (Duration::ZERO, Duration::from_secs(1));
    assert_eq!(text(now, ""), (200, "first".to_string()));
    // The new file has the same date and length. The server notices that it is another file.
    place.write("new", "other");
    fs::rename(place.root().join("new"), place.root().join("a.txt")).expect("the file can be renamed");
    assert_eq!(text(now, ""), (200, "first".to_string()), "kept for a second");
    assert_eq!(text(second, ""), (200, "other".to_string()));
    assert_eq!(text(now, "gzip"), (200, "first in gzip".to_string()));
    fs::remove_file(place.root().join("a.txt.gz")).expect("the file can be removed");
    place.write("a.txt.br", "in brotli");
    assert_eq!(text(second, "gzip, br"), (200, "in brotli".to_string()));
    fs::remove_file(place.root().join("a.txt")).expect("the file can be removed");
    assert_eq!(text(second, ""), (404, "not found\n".to_string()));
    fs::create_dir(place.root().join("a.txt")).expect("a folder");
    assert_eq!(text(now, "").0, 308);
}

/// The server keeps a large file open. At each request, its metadata shows if it was changed, replaced or removed.
#[test]
fn a_changed_large_file_is_seen_at_the_next_request() {
    let place = Place::new("large-changes");
    let large = |letter: &str, length| letter.repeat(length);
    place.write("a.txt", large("a", 100_000));
    let mut client = client(place.files());
    let mut text = |after| {
        client.advance(after);
        let answer = client.get("/static/a.txt").send();
        (answer.status().as_u16(), answer.text().to_string())
    };
    let (soon, second) = (Duration::from_millis(1), Duration::from_secs(1));
    for after in [soon, soon, second, second] {
        assert!(text(after) == (200, large("a", 100_000)), "the first file");
    }
    place.write("new", large("b", 100_000));
    fs::rename(place.root().join("new"), place.root().join("a.txt")).expect("the file can be renamed");
    assert!(text(soon) == (200, large("b", 100_000)), "another file");
    place.write("a.txt", large("c", 80_000));
    assert!(text(soon) == (200, large("c", 80_000)), "written in place");
    place.write("a.txt", "small");
    assert_eq!(text(soon), (200, "small".to_string()));
    place.write("a.txt", large("d", 90_000));
    assert!(text(second) == (200, large("d", 90_000)), "large again");
    fs::remove_file(place.root().join("a.txt")).expect("the file can be removed");
    assert_eq!(text(soon), (404, "not found\n".to_string()));
}

#[test]
fn a_file_that_was_just_written_has_a_weak_tag_and_is_read_again() {
    let place = Place::new("young");
    let path = place.root().join("young.txt");
    fs::write(&path, "first").expect("a file");
    let tomorrow = SystemTime::now() + Duration::from_secs(86_400);
    let set = |date| fs::File::options().write(true).open(&path).and_then(|file| file.set_modified(date));
    set(tomorrow).expect("a date");
    let mut client = client(place.files());
    let answer = client.get("/static/young.txt").send();
    assert!(answer.header("etag").starts_with("W/\""), "{answer:?}");
    assert_eq!(answer.header("last-modified"), "", "a date in the future is not sent");
    let fields = [("range", "bytes=0-0"), ("if-range", answer.header("etag"))];
    assert_eq!(ask(&mut client, Method::GET, "/static/young.txt", &fields).status(), 200);
    let fields = [("if-none-match", answer.header("etag"))];
    assert_eq!(ask(&mut client, Method::GET, "/static/young.txt", &fields).status(), 304);
}

#[test]
fn middleware_of_every_kind_changes_the_fields_of_files() {
    use highwire::middleware::{Next, OwnedRequest, after, from_fn};
    use highwire::{HeaderValue, Response, header};
    fn change(response: &mut Response) {
        response.add_header(header::CONTENT_TYPE, HeaderValue::from_static("text/other"));
        response.set_header(header::ACCEPT_RANGES, HeaderValue::from_static("none"));
        response.remove_header(&header::ETAG);
        response.set_status(StatusCode::ACCEPTED);
    }
    let place = Place::new("middleware");
    place.write("a.txt", "a");
    let app = || App::new().files("/static", place.files());
    let waiting = app().with(from_fn(async |request: OwnedRequest, next: Next| {
        let mut response = next.run(request).await;
        change(&mut response);
        response
    }));
    for app in [app().with(after(change)), waiting] {
        let mut client = Client::new(app).expect("an app");
        for _ in 0..2 {
            let answer = client.get("/static/a.txt").send();
            assert_eq!(answer.headers().get_all("content-type").iter().count(), 1);
            assert_eq!((answer.header("content-type"), answer.header("last-modified")), ("text/other", DATE_TEXT));
            assert_eq!((answer.header("accept-ranges"), answer.header("etag")), ("none", ""));
            assert_eq!((answer.status(), answer.text()), (StatusCode::ACCEPTED, "a"));
        }
    }
}

#[test]
fn links_within_the_folder_lead_on_and_others_do_not() {
    let place = Place::new("links");
    place.write("a.txt", "a");
    fs::write(place.0.join("secret.txt"), "secret").expect("a file");
    symlink("a.txt", place.root().join("within.txt")).expect("a link");
    symlink("../secret.txt", place.root().join("up.txt")).expect("a link");
    symlink(place.0.join("secret.txt"), place.root().join("absolute.txt")).expect("a link");
    symlink("..", place.root().join("parent")).expect("a link");
    // A folder whose index must not be seen is not listed instead.
    place.write("forbidden/other.txt", "other");
    symlink("../../secret.txt", place.root().join("forbidden/index.html")).expect("a link");
    assert_eq!(client(place.files().listing()).get("/static/forbidden/").send().status(), 404);
    let mut client = client(place.files().listing());
    assert_eq!(client.get("/static/within.txt").send().text(), "a");
    for path in ["up.txt", "absolute.txt", "parent/", "parent/secret.txt", "parent"] {
        assert_eq!(client.get(&format!("/static/{path}")).send().status(), 404, "{path}");
    }
    let page = client.get("/static/").send();
    assert!(page.text().contains("within.txt") && !page.text().contains("up.txt"), "{}", page.text());
    assert!(!page.text().contains("parent"), "{}", page.text());
}

#[test]
fn a_folder_that_is_switched_or_made_again_is_noticed() {
    let place = Place::new("switched");
    for (folder, text) in [("one", "one"), ("two", "two")] {
        place.write(&format!("{folder}/a"), text);
    }
    let current = place.root().join("current");
    symlink("one", &current).expect("a link");
    for cache_bytes in [0, 1 << 20] {
        let wait = async || highwire::time::sleep(Duration::from_millis(1100)).await;
        let files = Files::new(&current).cache_bytes(cache_bytes);
        let mut client = Client::new(App::new().files("/static", files).get("/wait", wait)).expect("an app");
        let mut text = || {
            client.get("/wait").send();
            let answer = client.get("/static/a").send();
            (answer.status().as_u16(), answer.text().to_string())
        };
        assert_eq!(text(), (200, "one".to_string()));
        symlink("two", place.root().join("next")).expect("a link");
        fs::rename(place.root().join("next"), &current).expect("another target");
        assert_eq!(text(), (200, "two".to_string()));
        // While there is no folder, the old one is served, and it has no files any more.
        fs::remove_dir_all(place.root().join("two")).expect("the folder can be removed");
        assert_eq!(text().0, 404);
        place.write("two/a", "three");
        assert_eq!(text(), (200, "three".to_string()));
        fs::remove_file(&current).expect("the link can be removed");
        assert_eq!(text(), (200, "three".to_string()));
        symlink("one", &current).expect("a link");
        assert_eq!(text(), (200, "one".to_string()));
        place.write("two/a", "two");
    }
}

#[test]
fn a_single_page_that_is_missing_is_an_error_at_the_start() {
    let place = Place::new("no-single-page");
    let error = Client::new(App::new().files("/", place.files().single_page("app.html"))).expect_err("an error");
    assert!(error.to_string().contains("cannot open the single page app.html"), "{error}");
}
