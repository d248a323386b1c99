//! Generates the service with protox, so that a build needs no protoc.

use std::error::Error;

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(["externalgrpc.proto", "node.proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("externalgrpc.bin"), compiler.encode_file_descriptor_set())?;
    tonic_prost_build::configure().compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
