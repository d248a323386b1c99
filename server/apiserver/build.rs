//! Compiles the descriptions of binary bodies with protox, so that a build needs no protoc.

use std::{error::Error, path::PathBuf};

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let mut compiler = Compiler::new(["proto"])?;
    compiler.include_imports(true).open_files(["bodies.proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("bodies.bin"), compiler.encode_file_descriptor_set())?;
    Ok(())
}
