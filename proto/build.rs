//! Generates the contract without protoc.
fn main() {}
