//! Generates the contract with protox, so that a build needs no protoc.

use std::error::Error;

use protox::Compiler;

const DRIVER: &str = "ostler/driver/v1alpha1/driver.proto";
const UNARY: &str = "ostler/driver/v1alpha1/machine_driver.proto";
const DEBUG: &str = "ostler/driver/v1alpha1/debug.proto";
/// The protocol of the first proposal, once for each of its two names.
const LEGACY: [&str; 2] = ["legacy/infra/infra.proto", "legacy/service/service.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=ostler");
    println!("cargo:rerun-if-changed=legacy");
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    // A set for each listener, with what it serves. They are encoded by the compiler, because the types
    // of `prost` would lose `debug_redact`.
    let driver = compile(&[DRIVER])?;
    std::fs::write(out.join("driver_descriptor.bin"), driver.encode_file_descriptor_set())?;
    let unary = compile(&[UNARY])?;
    std::fs::write(out.join("unary_descriptor.bin"), unary.encode_file_descriptor_set())?;
    let admin = compile(&[DRIVER, DEBUG])?;
    std::fs::write(out.join("admin_descriptor.bin"), admin.encode_file_descriptor_set())?;
    let all = compile(&[DRIVER, UNARY, DEBUG])?;

    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    // Large, and often absent or passed on: each frame goes through several queues and is moved at each.
    config.boxed("context");
    for field in ["Operation.machine", "MachineRecord.fault", "PoolRecord.fault"] {
        config.boxed(format!(".ostler.driver.v1alpha1.{field}"));
    }
    for frame in [
        "RegisterRequest.frame.hello",
        "RegisterRequest.frame.completed",
        "RegisterRequest.frame.progress",
        "RegisterRequest.frame.event",
        "RegisterResponse.frame.welcome",
        "RegisterResponse.frame.operation",
    ] {
        config.boxed(format!(".ostler.driver.v1alpha1.{frame}"));
    }
    tonic_prost_build::configure()
        .codec_path("crate::codec::Counting")
        // Their hand-written `Debug` keeps secrets out of logs.
        .skip_debug([
            "ostler.driver.v1alpha1.BootstrapData",
            "ostler.driver.v1alpha1.GetSecretResponse",
            "ostler.driver.v1alpha1.OperationContext",
        ])
        .compile_fds_with_config(all.file_descriptor_set(), config)?;
    tonic_prost_build::configure()
        .skip_debug(["infra.Secret", "service.Secret"])
        .compile_fds(protox::compile(LEGACY, ["."])?)?;
    Ok(())
}

fn compile(files: &[&str]) -> Result<Compiler, Box<dyn Error>> {
    let mut compiler = Compiler::new(["."])?;
    compiler.include_imports(true).include_source_info(true).open_files(files)?;
    Ok(compiler)
}
