//! Generates the contract with protox, so that a build needs no protoc.

use std::error::Error;

const DRIVER: &str = "ostler/driver/v1alpha1/driver.proto";
const DEBUG: &str = "ostler/driver/v1alpha1/debug.proto";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ostler");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    let write = |name: &str, descriptors: &_| {
        std::fs::write(out.join(name), prost::Message::encode_to_vec(descriptors))
    };
    // Two sets: what drivers are told about has nothing of the admin listener.
    write("driver_descriptor.bin", &protox::compile([DRIVER], ["."])?)?;
    let all = protox::compile([DRIVER, DEBUG], ["."])?;
    write("admin_descriptor.bin", &all)?;
    tonic_prost_build::configure()
        // Their hand-written `Debug` keeps secrets out of logs.
        .skip_debug([
            "ostler.driver.v1alpha1.BootstrapData",
            "ostler.driver.v1alpha1.GetSecretResponse",
        ])
        .compile_fds(all)?;
    Ok(())
}
