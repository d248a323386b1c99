//! Marks by which the processes of a tree are known, in the environment of each.

/// The variable. It holds a mark of each tree that the process is in, the outermost first.
pub(crate) const VARIABLE: &str = "OSTLER_PROCESS_TREE";

/// Ends all processes with this mark, and waits until they have. How many there were, or the numbers of those that do not
/// end. `ask`: with SIGTERM first.
#[cfg(target_os = "linux")]
pub(crate) async fn end(mark: &str, ask: bool) -> Result<usize, Vec<i32>> {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use rustix::process::Signal;
    use tokio::time::Instant;

    /// For processes to end after SIGTERM.
    const ASKED: Duration = Duration::from_secs(5);
    /// For them to end after SIGKILL, which takes longer only while the kernel waits for a device.
    const KILLED: Duration = Duration::from_secs(30);
    /// Between two looks.
    const LOOK: Duration = Duration::from_millis(50);

    let began = Instant::now();
    let kill_at = if ask { began + ASKED } else { began };
    let mut asked = BTreeSet::new();
    loop {
        let left = crate::processes::marked(VARIABLE, mark);
        if left.is_empty() {
            return Ok(asked.len());
        }
        let now = Instant::now();
        if now > kill_at + KILLED {
            return Err(left.iter().map(|it| it.pid).collect());
        }
        for process in left {
            let first = asked.insert(process);
            let signal = if now >= kill_at { Signal::KILL } else { Signal::TERM };
            if (first || signal == Signal::KILL)
                && let Err(error) = process.signal(signal)
            {
                tracing::debug!(process = process.pid, %error, "a process cannot be signalled");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Nothing tells the environment of a process here.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn end(_: &str, _: bool) -> Result<usize, Vec<i32>> {
    Ok(0)
}
