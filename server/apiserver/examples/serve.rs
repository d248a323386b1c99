//! Serves the API on a port of the loopback address, from a data directory:
//!
//! ```text
//! cargo run -p ostler-apiserver --example serve -- DIRECTORY [PORT]
//! ```
//!
//! Prints the path of a kubeconfig, and stops on Ctrl-C.

use std::{error::Error, path::PathBuf};

use ostler_apiserver::serve::{ApiServer, Options};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

#[tokio::main]
#[expect(clippy::print_stdout, reason = "the path is what the example is run for")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("usage: serve DIRECTORY [PORT]")?);
    let port: u16 = arguments.next().map_or(Ok(16440), |port| port.parse())?;
    let api = ApiServer::open(Options::directory(&directory)).await?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    let tls = api.tls(&[])?;
    let kubeconfig = directory.join("kubeconfig");
    let server = format!("https://{}", listener.local_addr()?);
    api.write_kubeconfig(&kubeconfig, &tls, &server)?;
    println!("{}", kubeconfig.display());
    let shutdown = CancellationToken::new();
    let served = api.clone();
    let serving = served.serve(listener, tls, shutdown.clone());
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => served?,
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            shutdown.cancel();
            serving.await?;
        }
    }
    api.close().await;
    Ok(())
}
