//! The node agent as a binary: PID 1 of a container machine.

use clap::Parser as _;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    ostler_node::run(ostler_node::Options::parse()).await
}
