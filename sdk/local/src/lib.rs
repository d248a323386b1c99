//! What one computer has: process trees that end as a whole, unix sockets, and the directories of both.
//!
//! A driver is a tree of processes: a start script, the driver, and their children. [`Keeper`] starts such a tree. On Linux
//! a process of ours ([`Keep`]) stands above the tree: a process that loses its parent becomes the keeper's child, and the
//! keeper ends after the last process of the tree. When the process that started the tree is gone, even by SIGKILL, the
//! keeper ends the whole tree. Each process of the tree has the tree's mark in its environment, and [`Record`] holds the
//! beginning of the mark in a file: if the keeper was killed as well, the next owner of the file finds the rest of the tree
//! by the mark.
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
