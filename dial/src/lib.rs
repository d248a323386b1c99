//! How our clients connect.
//!
//! Libraries read the variables of proxies each in its own way: kube takes `HTTPS_PROXY` for loopback as well and `NO_PROXY` for
//! the address of the proxy, tonic takes none. So nobody asks them: every client of the core, of the commands, of the kubelets
//! and of the SDK connects by [`Dial`], which decides as curl and Go do.

#[cfg(feature = "kube")]
pub mod cluster;
mod connector;
mod exempt;
mod owner;
mod proxy;
mod unix;

pub use connector::{Dial, DialError};
pub use owner::{NotTrusted, Trusted};
pub use proxy::{BadProxy, Proxies, Proxy};
pub use unix::DialUnix;
