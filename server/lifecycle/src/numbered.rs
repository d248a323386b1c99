//! Numbers of things, for people.

use std::fmt::Display;

/// `1 machine`, `2 machines`.
pub fn numbered<N: Copy + Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    let plural = match thing {
        _ if number == N::from(1) => "",
        thing if thing.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {thing}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular() {
        assert_eq!(
            [0, 1, 2].map(|it| numbered(it, "class")),
            ["0 classes", "1 class", "2 classes"]
        );
        assert_eq!(numbered(1_usize, "machine") + &numbered(-1, "machine"), "1 machine-1 machines");
    }
}
