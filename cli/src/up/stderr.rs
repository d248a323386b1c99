//! Prints the stderr of drivers with its terminal escapes made harmless.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};

/// Longest piece of a line that is held and printed; the rest of a longer line follows in the next.
const LONGEST_LINE: u64 = 16 * 1024;

/// Prints each line with the name of the driver before it, so that readers know whose it is, until the other end is closed.
pub(super) async fn relay(driver: &str, stderr: impl AsyncRead + Unpin, tell: impl Fn(String)) {
    let mut stderr = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match (&mut stderr).take(LONGEST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                tell(format!("driver {driver}: {}", text.trim_end_matches(['\r', '\n'])));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::terminal::{
        line,
        tests::{HOSTILE, assert_harmless},
    };

    #[tokio::test]
    async fn every_line_of_a_driver_has_its_name_and_a_long_one_is_cut_into_such_lines() {
        let told = RefCell::new(Vec::new());
        let long = "x".repeat(40_000);
        let written = format!("first\r\n{HOSTILE}\n{long}\nlast");
        relay("d", written.as_bytes(), |line| told.borrow_mut().push(line)).await;
        let told = told.into_inner();
        assert!(
            told.iter().all(|it| it.starts_with("driver d: ") && it.len() < 17_000),
            "{told:?}"
        );
        for it in &told {
            assert_harmless(&line(it));
        }
        assert_eq!(told.first().map(String::as_str), Some("driver d: first"));
        assert_eq!(told.last().map(String::as_str), Some("driver d: last"));
        assert_eq!(
            told.iter().map(|it| it.matches('x').count()).sum::<usize>()
                - HOSTILE.matches('x').count(),
            40_000
        );
    }
}
