//! Runs the simulation for a range of seeds, for example `cargo run --release -p sim -- --seeds 10000`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

const HELP: &str = "\
Runs the whole server on a simulated network, once per seed; and a client, a server and sometimes a proxy.

Usage: sim [--seeds N] [--first N] [--verbose]

  --seeds N   number of seeds (default 1000)
  --first N   the first seed (default 0); --first N --seeds 1 replays seed N
  --verbose   print a line for each seed";

fn main() -> ExitCode {
    let (mut first, mut seeds, mut verbose) = (0u64, 1000u64, false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|text| text.parse().ok());
        match argument.as_str() {
            "--first" | "--seeds" => {
                let Some(number) = number() else {
                    eprintln!("sim: `{argument}` needs a number");
                    return ExitCode::FAILURE;
                };
                *(if argument == "--first" { &mut first } else { &mut seeds }) = number;
            }
            "--verbose" => verbose = true,
            "--help" | "-h" => {
                println!("{HELP}");
                return ExitCode::SUCCESS;
            }
            _ => {
                eprintln!("sim: unknown option `{argument}`\n{HELP}");
                return ExitCode::FAILURE;
            }
        }
    }
    run(first, seeds, verbose)
}

fn run(first: u64, seeds: u64, verbose: bool) -> ExitCode {
    let (mut passed, mut failed, mut clients, mut answers, mut broken, mut turns) = (0u64, 0u64, 0, 0, 0, 0);
    let (mut requests, mut responses, mut cut) = (0, 0, 0);
    for seed in first..first.saturating_add(seeds) {
        // Every 16th seed runs twice. If the runs differ, a failing seed cannot be replayed.
        let result = sim::script::play(seed).and_then(|outcome| {
            if seed % 16 == 0 && sim::script::play(seed).as_ref() != Ok(&outcome) {
                return Err("not deterministic: the second run differs".to_string());
            }
            Ok(outcome)
        });
        let client = sim::client::play(seed).and_then(|outcome| {
            if seed % 16 == 0 && sim::client::play(seed).as_ref() != Ok(&outcome) {
                return Err("not deterministic: the second run of the client differs".to_string());
            }
            Ok(outcome)
        });
        let result = result.and_then(|outcome| Ok((outcome, client.map_err(|error| format!("client: {error}"))?)));
        match result {
            Ok((outcome, client)) => {
                passed += 1;
                requests += client.requests;
                responses += client.responses;
                cut += client.cut;
                clients += outcome.clients;
                answers += outcome.answers;
                broken += outcome.broken;
                turns += outcome.turns;
                if verbose {
                    println!("seed {seed}: {outcome:?} {client:?}");
                }
            }
            Err(error) => {
                failed += 1;
                println!(
                    "seed {seed} failed: {error}\n  replay it: `cargo run --release -p sim -- --first {seed} --seeds 1`"
                );
            }
        }
    }
    println!("{clients} clients, {answers} answers checked, {broken} links broken, {turns} turns");
    println!("{requests} requests of clients, {responses} responses, {cut} links cut");
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
