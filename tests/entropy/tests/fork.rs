//! A process that had threads can be forked as soon as it has joined them. Without a harness: libtest has
//! threads of its own.

#![expect(clippy::panic, reason = "a test")]

fn main() {
    for round in 0..500 {
        let thread = std::thread::spawn(std::thread::yield_now);
        if let Err(error) = thread.join() {
            std::panic::resume_unwind(error);
        }
        match ostler_entropy::fork() {
            Ok(None) => ostler_entropy::leave(0),
            Ok(Some(child)) => {
                assert!(matches!(ostler_entropy::wait(), Ok((ended, 0)) if ended == child));
            }
            Err(error) => panic!("round {round}: {error}"),
        }
    }
}
