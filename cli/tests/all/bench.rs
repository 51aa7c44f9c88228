//! Tests `highwire bench` as a process, against Highwire and against servers that misbehave.
//!
//! Needs a real kernel, because the command generates load with real sockets. Runs end after a number of requests, so that no
//! figure depends on the machine's speed.

use crate::demo::{Demo, HIGHWIRE, signal};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Lets time pass, for servers that are slow and for programs that are stopped. No result depends on how long it takes.
fn wait(time: Duration) {
    let end = Instant::now() + time;
    while let Some(rest) = end.checked_duration_since(Instant::now()) {
        std::thread::park_timeout(rest);
    }
}

fn bench(arguments: &[&str]) -> Output {
    let mut command = Command::new(HIGHWIRE);
    command.arg("bench").args(arguments).stdin(Stdio::null()).output().expect("a process")
}

/// Runs the command with a report in JSON.
fn report(arguments: &[&str]) -> Value {
    let output = bench(&[&["--format", "json", "--threads", "2"], arguments].concat());
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{arguments:?}: {error}; {errors}"))
}

fn number(report: &Value, path: &str) -> u64 {
    report.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("no number {path} in {report:#}"))
}

#[test]
fn requests_are_answered_in_every_version_and_on_every_engine() {
    let folder = std::env::temp_dir().join(format!("highwire-bench-{}", std::process::id()));
    let socket = folder.with_extension("socket").display().to_string();
    let unix = format!("unix:{socket}");
    let arguments = ["--listen", "127.0.0.1:0", "--listen", &unix, "--tls-listen", "127.0.0.1:0", "--tls-self-signed"];
    let demo = Demo::start("readiness", &arguments).expect("a server");
    let (plain, tls) = (demo.url("/hello"), demo.tls_url("/hello"));
    let body = "x".repeat(100_000);
    let cases: &[(&str, &[&str])] = &[
        (&plain, &[]),
        (&plain, &["--pipeline", "16"]),
        (&plain, &["--close", "-c", "3"]),
        (&plain, &["--http", "1.0"]),
        (&plain, &["--http", "2", "--streams", "10"]),
        (&plain, &["--unix", &socket]),
        (&plain, &["-X", "HEAD"]),
        (&tls, &["--insecure"]),
        (&tls, &["--insecure", "--close", "-c", "2"]),
        (&tls, &["--insecure", "--http", "2", "--streams", "7"]),
        (&plain, &["--rate", "100k", "-c", "4"]),
        (&plain, &["--rate", "100k", "--arrival", "poisson", "--close"]),
    ];
    for engine in ["readiness", "auto"] {
        for (url, options) in cases {
            let all = [&["-n", "300", "-c", "5", "--engine", engine, url], *options].concat();
            let report = report(&if options.contains(&"-c") { [&all[..2], &all[4..]].concat() } else { all });
            assert_eq!(number(&report, "/statuses/200"), 300, "{options:?}: {report:#}");
            assert_eq!(report["errors"], serde_json::json!({}), "{options:?}");
            assert_eq!(number(&report, "/latency_from_intended_us/count"), 300, "{options:?}");
        }
        let echo = demo.url("/body");
        for http in ["1.1", "2"] {
            let report = report(&["-n", "40", "-c", "4", "--engine", engine, "--http", http, "--body", &body, &echo]);
            assert_eq!(number(&report, "/statuses/200"), 40, "{http}: {report:#}");
            assert!(number(&report, "/received_bytes") > 40 * 100_000, "{http}: the bodies come back");
        }
    }
}

/// Starts a server that accepts connections and treats each with `act`. Returns its URL.
fn server(act: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    format!("http://{address}/")
}

/// Reads a request and answers with these bytes.
fn answer(mut stream: &TcpStream, bytes: &[u8]) -> bool {
    let (mut request, mut buffer) = (Vec::new(), [0; 1000]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => request.extend_from_slice(&buffer[..count]),
            _ => return false,
        }
    }
    stream.write_all(bytes).is_ok()
}

#[test]
fn each_misbehaviour_has_its_class() {
    let classes: [(&str, String, &[&str]); 6] = [
        ("closed without a response", server(|stream| _ = answer(&stream, b"")), &[]),
        ("protocol", server(|stream| _ = answer(&stream, b"SSH-2.0-x\r\n\r\n")), &[]),
        ("short body", server(|stream| _ = answer(&stream, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")), &[]),
        ("status", server(|stream| _ = answer(&stream, b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n")), &[]),
        (
            "reset",
            server(|stream| {
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an option");
                answer(&stream, b"");
            }),
            &[],
        ),
        (
            "timeout",
            server(|stream| {
                std::thread::spawn(move || answer(&stream, b"") && answer(&stream, b""));
            }),
            &["--timeout", "300ms"],
        ),
    ];
    for (class, url, options) in &classes {
        let report = report(&[&["-n", "1", "-c", "1", url], *options].concat());
        assert_eq!(number(&report, &format!("/errors/{class}/count")), 1, "{report:#}");
        assert_eq!(number(&report, "/responses"), 0, "{class}");
        // The slowest requests are not missing in the latencies.
        let late = u64::from(*class == "timeout");
        assert_eq!(number(&report, "/latency_from_intended_us/count"), late, "{class}");
    }
}

/// A response that ends with the connection leaves the requests behind it without one.
#[test]
fn pipelined_requests_behind_the_end_of_a_connection_are_errors() {
    let url = server(|stream| _ = answer(&stream, b"HTTP/1.1 200 OK\r\n\r\nbody"));
    let report = report(&["-n", "8", "-c", "1", "--pipeline", "8", &url]);
    assert_eq!(number(&report, "/statuses/200"), 1, "{report:#}");
    assert_eq!(number(&report, "/errors/closed without a response/count"), 7, "{report:#}");
}

#[test]
fn a_run_without_a_server_is_one_clear_line() {
    let port = testkit::ports::free_port();
    let plain = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let tls = plain.replace("http:", "https:");
    for (url, http, text) in [(format!("http://127.0.0.1:{port}/"), "1.1", "refused"), (tls, "1.1", "TLS")] {
        let output = bench(&["-d", "30s", "--timeout", "2s", "--http", http, &url]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), errors.lines().count()), (Some(1), 1), "{errors}");
        assert!(errors.contains(text), "{errors}");
    }
}

#[test]
fn a_run_in_which_every_connection_fails_ends_soon() {
    let url = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let report = report(&["-d", "1h", "-c", "3", "--http", "2", &url]);
    assert!(report["seconds"].as_f64().is_some_and(|seconds| seconds < 600.0), "{report:#}");
    assert_eq!(report["statuses"], serde_json::json!({}));
}

#[test]
fn mistakes_in_options_are_told() {
    let url = "http://127.0.0.1:9/";
    for (options, text) in [
        (&["ftp://a/"][..], "ftp"),
        (&["--rate", "fast", url], "fast"),
        (&["--assert", "p99=5ms", url], "p99"),
        (&["--stages", "/no/such/file", url], "/no/such/file"),
        (&["--body-file", "/no/such/file", url], "/no/such/file"),
        (&["-H", "no colon", url], "NAME: VALUE"),
        (&["-H", "a b: c", url], "cannot be sent"),
        (&["-X", "GE T", url], "cannot be sent"),
        (&["--pid", "4000000000", url], "--pid"),
        (&["--ca", "/no/such/file", "https://127.0.0.1:9/"], "/no/such/file"),
        (&["-c", "0", url], "from 1 to"),
        (&["-d", "0", url], "more than 0"),
        (&["http://192.0.2.1:9/"], "--yes"),
        (&["--rate", "5k", "http://192.0.2.1:9/"], "5000 requests a second to http://192.0.2.1:9/"),
    ] {
        let output = bench(options);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {errors}");
        assert!(errors.contains(text) && !errors.contains("panicked"), "{options:?}: {errors}");
    }
}

/// The requests of an open loop have their times, whether the server keeps up or not: one that stands still for a second has
/// latencies of a second, at any concurrency.
#[test]
fn a_stall_shows_in_the_latencies_from_the_intended_times() {
    for connections in ["1", "20"] {
        let begun = std::sync::Arc::new(std::sync::Mutex::new(None::<Instant>));
        let url = server(move |stream| {
            let begun = begun.clone();
            std::thread::spawn(move || {
                while answer(&stream, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") {
                    // From the first request on, all connections stand still in the second half of a second.
                    let first = *begun.lock().expect("no panic").get_or_insert_with(Instant::now);
                    let since = first.elapsed().as_secs_f64();
                    if (0.5..1.5).contains(&since) {
                        wait(Duration::from_secs_f64(1.5 - since));
                    }
                }
            });
        });
        let report = report(&["--rate", "200", "-d", "2s", "-c", connections, &url]);
        assert_eq!(number(&report, "/requests") + number(&report, "/unsent_requests"), 400);
        let p999 = number(&report, "/latency_from_intended_us/percentiles/p99.9");
        assert!(p999 >= 800_000, "{connections} connections: {report:#}");
        // A quarter of the requests were due in the stall, so the median does not show it and the 90th percentile does.
        let p90 = number(&report, "/latency_from_intended_us/percentiles/p90");
        assert!(p90 >= 400_000, "{connections} connections: {report:#}");
    }
}

#[test]
fn a_generator_that_is_held_says_so() {
    let demo = Demo::start("readiness", &["--listen", "127.0.0.1:0"]).expect("a server");
    let mut command = Command::new(HIGHWIRE);
    command.args(["bench", "-d", "2s", "-c", "4", "--quiet", &demo.url("/hello")]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a process");
    while child.try_wait().expect("a process").is_none() {
        signal(child.id(), "STOP");
        wait(Duration::from_millis(180));
        signal(child.id(), "CONT");
        wait(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(
        text.trim_end().lines().next_back().is_some_and(|line| line.starts_with("the generator was the limit")),
        "{text}"
    );
}

#[test]
#[cfg(target_os = "linux")]
fn a_machine_without_local_ports_says_so() {
    let script = r#"
        ip link set lo up && echo '40000 40015' > /proc/sys/net/ipv4/ip_local_port_range || exit 77
        "$0" demo --listen 127.0.0.1:8080 2> /dev/null & server=$!
        for _ in $(seq 100); do sleep 0.1; "$0" bench -n 1 -c 1 --quiet http://127.0.0.1:8080/hello > /dev/null 2>&1 && break; done
        "$0" bench -n 2000 -c 40 --quiet http://127.0.0.1:8080/hello; status=$?
        kill $server
        exit $status
    "#;
    let output = Command::new("unshare").args(["--net", "sh", "-c", script, HIGHWIRE]).output();
    let output = match output {
        Ok(output)
            if output.status.code() != Some(77) && !String::from_utf8_lossy(&output.stderr).contains("unshare:") =>
        {
            output
        }
        _ => return println!("not run: no network namespace can be made here"),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("no local port or descriptor left"), "{text}");
}

#[test]
fn a_slow_server_is_the_limit_and_conditions_are_checked() {
    let url = server(|stream| {
        std::thread::spawn(move || {
            while answer(&stream, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") {
                wait(Duration::from_millis(20));
            }
        });
    });
    let arguments = ["-n", "40", "-c", "2", "--quiet", "--pid"];
    let id = std::process::id().to_string();
    let run = |condition: &str| bench(&[&arguments[..], &[&id, "--assert", condition, &url]].concat());
    let output = run("errors<1%, p50>10ms");
    let text = String::from_utf8_lossy(&output.stdout);
    // On a busy machine the generator may be the limit (3).
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{text}");
    assert!(text.contains("was the limit") && text.contains("resident"), "{text}");
    let output = run("p50<1ms");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!([Some(3), Some(4)].contains(&output.status.code()), "{errors}");
    assert!(errors.contains("p50<1ms does not hold: it is "), "{errors}");
}

#[test]
fn two_servers_are_compared_in_turn() {
    let demos = [(); 2].map(|()| Demo::start("readiness", &["--listen", "127.0.0.1:0"]).expect("a server"));
    let [a, b] = demos.each_ref().map(|demo| demo.url("/hello"));
    let [pid_a, pid_b] = demos.each_ref().map(|demo| demo.id().to_string());
    let options = ["-n", "2000", "-c", "4", "--rounds", "3", "--pid-a", &pid_a, "--pid-b", &pid_b];
    let output = bench(&[&["compare"], &options[..], &[&a, &b]].concat());
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // 3: on a busy machine, the generator may have been the limit of a run.
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{errors}");
    assert!(text.contains("3 rounds of A, B, B, A") && text.contains("  B over A  "), "{text}");
    assert!(text.contains("responses a second: A ") && text.contains("p99 from the intended time: A "), "{text}");

    let gone = format!("http://127.0.0.1:{}/", testkit::ports::free_port());
    let output = bench(&["compare", &a, &gone, "-n", "10"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains(&gone) && errors.contains("refused"), "{errors}");
    assert_eq!(bench(&["compare", &a]).status.code(), Some(2));
    assert_eq!(bench(&[]).status.code(), Some(2));
}

#[test]
fn the_concurrency_of_a_server_with_places_for_some_is_found() {
    // A response takes 20 ms, and three are made at the same time.
    let places = std::sync::Arc::new((std::sync::Mutex::new(3), std::sync::Condvar::new()));
    let url = server(move |stream| {
        let places = places.clone();
        std::thread::spawn(move || {
            let (free, freed) = &*places;
            while answer(&stream, b"") {
                let mut left = freed.wait_while(free.lock().expect("no panic"), |left| *left == 0).expect("no panic");
                *left -= 1;
                drop(left);
                wait(Duration::from_millis(20));
                *free.lock().expect("no panic") += 1;
                freed.notify_one();
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        });
    });
    let output = bench(&["concurrency", "-n", "24", "--factor", "1.5", &url]);
    let (text, lines) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // On a busy machine a response may take longer, and the generator may be held (3), so neither is checked: only that there is a
    // number, and its way.
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{lines}");
    assert!(text.contains("connections have at most 1.5 times the latency of one"), "{lines}");
    assert!(lines.contains("     1 connections") && lines.contains("     2 connections"), "{lines}");
    assert_eq!(bench(&["concurrency", "--factor", "1", &url]).status.code(), Some(2));
    assert_eq!(bench(&["concurrency", "--rate", "5", &url]).status.code(), Some(2));
}

/// `script` of util-linux gives the command a terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_terminal_shows_a_live_view_and_then_the_report() {
    let demo = Demo::start("readiness", &["--listen", "127.0.0.1:0"]).expect("a server");
    for (option, is_live) in [("", true), ("--plain", false), ("--quiet", false)] {
        let command =
            format!("stty cols 110 rows 30; {HIGHWIRE} bench -d 1500ms --rate 100 {option} {}", demo.url("/hello"));
        let output = Command::new("script").args(["-qec", &command, "/dev/null"]).env("TERM", "xterm").output();
        let Ok(output) = output else { return println!("not run: there is no `script`") };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!([Some(0), Some(3)].contains(&output.status.code()), "{text}");
        // The view takes the alternate screen.
        assert_eq!(text.contains("\x1b[?1049h") && text.contains("responses"), is_live, "{option}: {text}");
        assert!(text.contains("status     200: 150"), "{option}: {text}");
    }
}

#[test]
fn the_highest_rate_is_found_for_which_conditions_hold() {
    let demo = Demo::start("readiness", &["--listen", "127.0.0.1:0"]).expect("a server");
    let url = demo.url("/hello");
    let run = |condition: &str| bench(&["--find", condition, "-d", "200ms", "-c", "2", &url]);
    // This holds at every rate, so the highest is the capacity, which is tried first.
    let output = run("max<1h");
    let (text, lines) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!([Some(0), Some(3)].contains(&output.status.code()), "{lines}");
    assert!(text.contains("highest rate with max<1h: ") && lines.contains("the capacity"), "{text} {lines}");
    let output = run("max<2us");
    let lines = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{lines}");
    assert!(lines.contains("no rate holds") && lines.contains("max<2us does not hold"), "{lines}");
    assert_eq!(run("speed>1").status.code(), Some(2));
}

#[test]
fn what_was_measured_is_reported_after_ctrl_c_and_in_each_format() {
    let demo = Demo::start("readiness", &["--listen", "127.0.0.1:0"]).expect("a server");
    let mut command = Command::new(HIGHWIRE);
    command.args(["bench", "-d", "60s", "-c", "2", "--plain", &demo.url("/hello")]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    // The first line of progress shows that there are responses.
    let mut line = [0; 1];
    child.stderr.as_mut().expect("a pipe").read_exact(&mut line).expect("a line of progress");
    assert!(signal(child.id(), "INT"), "the run has ended before");
    let output = child.wait_with_output().expect("a process");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("status     200: ") && text.contains("errors     none"), "{text}");

    let url = demo.url("/hello");
    let csv = bench(&["-n", "10", "-c", "1", "--format", "csv", &url]);
    let csv = String::from_utf8_lossy(&csv.stdout).into_owned();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].split(',').count(), lines[1].split(',').count(), "{csv}");
    let hgrm = bench(&["-n", "10", "-c", "1", "--format", "hgrm", &url]);
    let hgrm = String::from_utf8_lossy(&hgrm.stdout).into_owned();
    assert!(hgrm.contains("Total count    =           10]"), "{hgrm}");

    let page = bench(&["-n", "10", "-c", "1", "--format", "html", "-H", "x: <b>", &format!("{url}?a=<script>")]);
    let page = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(page.contains("<polyline class=\"one\"") && page.contains("status 200"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="), "the page loads something");

    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/bench.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).expect("the schema")).expect("JSON");
    let report = report(&["-n", "10", "-c", "1", "--rate", "1k", "--pid", &demo.id().to_string(), &url]);
    check(&schema, &report, &schema, "");
}

/// Checks a value against the keywords that the schema uses: `$ref`, `type`, `required`, `properties`, `additionalProperties`,
/// `items` and `enum`.
fn check(schema: &Value, value: &Value, root: &Value, path: &str) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).expect("a definition"),
        None => schema,
    };
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => panic!("{path} has no type"),
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_u64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    assert!(
        types.contains(&found) || (found == "integer" && types.contains(&"number")),
        "{path}: {found}, not {types:?}"
    );
    if let Some(allowed) = schema["enum"].as_array() {
        assert!(allowed.contains(value), "{path}: {value}");
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], item, root, &format!("{path}/{index}"));
    }
    let Some(object) = value.as_object() else { return };
    for required in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        assert!(object.contains_key(required), "{path} has no {required}");
    }
    for (name, value) in object {
        let of = schema["properties"].get(name).unwrap_or(&schema["additionalProperties"]);
        assert!(of.is_object(), "{path}/{name} is not in the schema");
        check(of, value, root, &format!("{path}/{name}"));
    }
}
