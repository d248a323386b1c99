//! One seed for all the randomness of a process.
//!
//! Ids, jitter, hash maps and the order in which `tokio::select!` looks at its branches all come from
//! `getrandom` in the end. This crate defines that function in place of the C library's: until
//! [`seed`] is called it asks the kernel, and from then on it deals numbers that depend on the seed
//! alone. Nothing else has to know of it, neither the product nor what it stands on.
//!
//! [`fork`] copies a process that has one thread: the copies begin alike, and each may end badly without harm to the
//! others.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

static SEEDED: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// From now on all randomness of this process depends on `seed` and on the order of the questions
/// alone. Not for two threads that ask at the same time: their order would be another source.
pub fn seed(seed: u64) {
    STATE.store(mix(seed), Ordering::SeqCst);
    SEEDED.store(true, Ordering::SeqCst);
}

/// One step of `SplitMix64`: the next state, well mixed.
fn mix(state: u64) -> u64 {
    let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    mix(STATE.fetch_add(STEP, Ordering::SeqCst).wrapping_add(STEP))
}

/// Replaces the function of this name in the C library.
///
/// # Safety
/// `buffer` can be written to for `length` bytes.
#[expect(unsafe_code, reason = "takes the place of a function of the C library")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    if !SEEDED.load(Ordering::SeqCst) {
        // SAFETY: the arguments are the caller's, who keeps the rules of the system call.
        let written = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
        return isize::try_from(written).unwrap_or(-1);
    }
    if length == 0 {
        return 0;
    }
    // SAFETY: the caller promises that so many bytes are its own.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) };
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(next().to_le_bytes().get(..chunk.len()).unwrap_or_default());
    }
    isize::try_from(length).unwrap_or(isize::MAX)
}

/// How often [`fork`] looks for threads that are about to end, and how long it waits in between: ten
/// seconds in all, on a machine that has other work.
const LOOKS: u32 = 10_000;
const LOOK: Duration = Duration::from_millis(1);

/// Another process that goes on from here: its id for the parent, nothing for the child.
///
/// A thread that was joined is in the kernel's list a moment longer: the kernel wakes the thread that joins it, and
/// removes it from the list afterwards. So this function waits until the kernel has removed the thread.
///
/// # Errors
/// The process keeps more than one thread (only the one that calls would go on, and what the others
/// hold would be held for ever), or the system has no room for another one.
#[expect(unsafe_code, reason = "there is no safe way to fork")]
#[expect(clippy::disallowed_methods, reason = "nothing else runs, and the kernel tells no waiter")]
pub fn fork() -> io::Result<Option<u32>> {
    let mut threads = threads()?;
    for _ in 0..LOOKS {
        if threads == 1 {
            break;
        }
        std::thread::sleep(LOOK);
        threads = self::threads()?;
    }
    if threads != 1 {
        return Err(io::Error::other(format!("{threads} threads run, and only one can go on")));
    }
    // SAFETY: no other thread exists, so that nothing is left locked or half done in the child.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        child => Ok(Some(child.unsigned_abs())),
    }
}

fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Waits for the end of a child: returns its id and its status (the exit code, or 128 and the signal).
///
/// # Errors
/// There is no child.
#[expect(unsafe_code, reason = "a call of the C library")]
pub fn wait() -> io::Result<(u32, i32)> {
    let mut status: c_int = 0;
    // SAFETY: `status` outlives the call.
    let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let code = if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    };
    Ok((child.unsigned_abs(), code))
}

/// Ends a process that was forked, without what an ordinary end does: that is the parent's.
#[expect(unsafe_code, reason = "a call of the C library")]
pub fn leave(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs afterwards.
    unsafe { libc::_exit(code) }
}

/// Ends this process by a signal once it has taken so many seconds of a processor, or ten times as many of the real clock: other
/// programs may have the processors.
#[expect(unsafe_code, reason = "calls of the C library")]
pub fn limit(seconds: u32) {
    let most = libc::rlimit { rlim_cur: seconds.into(), rlim_max: seconds.into() };
    // SAFETY: `most` outlives the call, which concerns this process alone.
    let _refused = unsafe { libc::setrlimit(libc::RLIMIT_CPU, &raw const most) };
    // SAFETY: sets a timer of the process; no other code uses it.
    let _left = unsafe { libc::alarm(seconds.saturating_mul(10)) };
}
