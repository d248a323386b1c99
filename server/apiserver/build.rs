//! Compiles the descriptions of binary bodies with protox, so that a build needs no protoc.

use std::{error::Error, path::PathBuf};

use protox::Compiler;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    for name in ["bodies", "openapi_v2"] {
        let mut compiler = Compiler::new(["proto"])?;
        compiler.include_imports(true).open_file(format!("{name}.proto"))?;
        std::fs::write(out.join(format!("{name}.bin")), compiler.encode_file_descriptor_set())?;
    }
    Ok(())
}
