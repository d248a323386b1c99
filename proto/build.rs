//! Generates the contract with protox, so that a build needs no protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ostler");
    let descriptors = protox::compile(["ostler/driver/v1alpha1/driver.proto"], ["."])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("driver_descriptor.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure()
        // Their hand-written `Debug` keeps secrets out of logs.
        .skip_debug([
            "ostler.driver.v1alpha1.BootstrapData",
            "ostler.driver.v1alpha1.GetSecretResponse",
        ])
        .compile_fds(descriptors)?;
    Ok(())
}
