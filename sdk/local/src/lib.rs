//! What one computer has: process trees that end as a whole, unix sockets, and the directories of both.
//!
//! A driver is a tree of processes: a start script, the driver, and what that starts. [`Keeper`] starts such a tree. On
//! Linux a process of ours ([`Keep`]) stands above it: whatever loses its parent becomes its child, and it ends with the
//! last of them. It ends all of them when the process that started it is gone, after SIGKILL, too. Each of them has a mark
//! in its environment that only this tree has, and [`Record`] holds its beginning in a file: by that, the next owner of the
//! file finds what is left if the process above was killed as well.
//!
//! A process that cleared its environment is found only while the process above it lives. On other systems a tree is the
//! process group of its program, and is not recorded.

mod directory;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod keep;
mod keeper;
mod marks;
#[cfg(target_os = "linux")]
mod processes;
mod record;
mod socket;
mod tree;

pub use directory::SocketDirectory;
#[cfg(target_os = "linux")]
pub use exec::Exec;
#[cfg(target_os = "linux")]
pub use keep::Keep;
pub use keeper::Keeper;
pub use record::Record;
pub use socket::{LONGEST_PATH, ShortPath, connect};
pub use tree::Tree;
