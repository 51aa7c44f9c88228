//! Header blocks of other encoders: the data of http2jp/hpack-test-case, which is not part of this project. If the
//! environment variable `HPACK_STORIES` names its folder (`HPACK_STORIES=/path/hpack-test-case`), the test decodes and
//! compares every block, and encodes and decodes the fields of each story. Otherwise it prints that it was not run.

use highwire_proto::hpack::{Decoder, Encoder, Indexing};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// More bytes than any story's list of fields has.
const MOST_LIST_BYTES: u32 = 1 << 20;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn stories(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder that can be read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            stories(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
}

fn bytes_of_hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a hex digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn decode(decoder: &mut Decoder, block: &[u8]) -> Fields {
    let (mut out, mut lines) = (Vec::new(), Vec::new());
    let decoded =
        decoder.decode(block, &mut out, (MOST_LIST_BYTES, u32::MAX), |line| lines.push(line)).expect("a block");
    assert!(!decoded.too_large);
    lines.iter().map(|line| (out[line.name.clone()].to_vec(), out[line.value.clone()].to_vec())).collect()
}

fn fields_of(case: &Value) -> Fields {
    let lines = case["headers"].as_array().expect("a list of fields");
    let pairs = lines.iter().flat_map(|line| line.as_object().expect("a field"));
    pairs.map(|(name, value)| (name.clone().into_bytes(), value.as_str().expect("text").as_bytes().to_vec())).collect()
}

#[test]
fn every_block_of_every_story_means_what_it_meant_to_its_encoder() {
    let Ok(folder) = std::env::var("HPACK_STORIES") else {
        println!("not run: set HPACK_STORIES to a folder with the data of http2jp/hpack-test-case");
        return;
    };
    let mut found = Vec::new();
    stories(Path::new(&folder), &mut found);
    assert!(!found.is_empty(), "there are no stories in {folder}");
    let mut blocks = 0;
    for path in &found {
        let text = std::fs::read(path).expect("a story");
        let story: Value = serde_json::from_slice(&text).expect("JSON");
        let (mut theirs, mut ours, mut encoder) = (Decoder::new(4096), Decoder::new(4096), Encoder::new());
        for case in story["cases"].as_array().expect("cases") {
            if let Some(size) = case["header_table_size"].as_u64() {
                theirs.set_most_table_bytes(size as u32);
            }
            let fields = fields_of(case);
            if let Some(wire) = case["wire"].as_str() {
                assert_eq!(decode(&mut theirs, &bytes_of_hex(wire)), fields, "{} {}", path.display(), case["seqno"]);
                blocks += 1;
            }
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value) in &fields {
                encoder.field(name, value, Indexing::Incremental, &mut block);
            }
            assert_eq!(decode(&mut ours, &block), fields, "encoded by us: {} {}", path.display(), case["seqno"]);
        }
    }
    println!("{} stories, {blocks} blocks", found.len());
}
