//! Makes client and server of `prices.proto`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=prices.proto");
    tonic_prost_build::configure().compile_fds(protox::compile(["prices.proto"], ["."])?)?;
    Ok(())
}
