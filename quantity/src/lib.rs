//! Kubernetes quantities: numbers with a suffix, such as `500m` or `1Gi`. An API server may write `1000m` back as
//! `1`, so they are compared by value.

use std::fmt;

/// The suffix family a quantity was written in; its canonical form keeps to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `Ki`, `Mi`, …
    Binary,
    /// `m`, `k`, `M`, …
    Decimal,
    /// `e3`, `E3`.
    Exponent,
}

/// A parsed quantity, in billionths of one. Finer amounts are rounded up.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    family: Family,
}

const NANO: i128 = 1_000_000_000;
const BINARY: [(&str, i128); 6] = [
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("Ei", 1 << 60),
];
const DECIMAL: [(&str, i32); 10] = [
    ("n", -9),
    ("u", -6),
    ("m", -3),
    ("", 0),
    ("k", 3),
    ("M", 6),
    ("G", 9),
    ("T", 12),
    ("P", 15),
    ("E", 18),
];

impl Quantity {
    /// Parses a quantity; `None` if it is malformed or beyond any use.
    pub fn parse(text: &str) -> Option<Self> {
        let split =
            text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(split)?;
        let (family, times, power) = scale(suffix)?;
        let nanos = nanos_of(number, times, power)?;
        Some(Self { nanos, family })
    }

    /// The amount in billionths.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }
}

fn scale(suffix: &str) -> Option<(Family, i128, i32)> {
    if let Some((_, times)) = BINARY.iter().find(|(name, _)| *name == suffix) {
        return Some((Family::Binary, *times, 0));
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Family::Decimal, 1, *power));
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse::<i32>().ok()?;
    (-18..=18).contains(&power).then_some((Family::Exponent, 1, power))
}

fn nanos_of(number: &str, times: i128, power: i32) -> Option<i128> {
    let (negative, digits) = match number.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    if all.is_empty() || all.len() > 24 || !all.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mantissa = all.parse::<i128>().ok()?.checked_mul(times)?;
    let exponent = power + 9 - i32::try_from(fraction.len()).ok()?;
    let factor = 10_i128.checked_pow(exponent.unsigned_abs())?;
    let nanos = if exponent >= 0 {
        mantissa.checked_mul(factor)?
    } else {
        mantissa.div_euclid(factor) + i128::from(mantissa.rem_euclid(factor) > 0)
    };
    Some(if negative { -nanos } else { nanos })
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.nanos.partial_cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: no fraction, the largest suffix that fits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.family == Family::Binary && self.nanos % NANO == 0 {
            let units = self.nanos / NANO;
            if units.abs() >= 1024 {
                let fitting = BINARY.iter().rev().find(|(_, times)| units % times == 0);
                let (suffix, times) = fitting.copied().unwrap_or(("", 1));
                return write!(f, "{}{suffix}", units / times);
            }
            return write!(f, "{units}");
        }
        let mut amount = self.nanos;
        let mut power = -9;
        while amount % 1000 == 0 && power < 18 {
            amount /= 1000;
            power += 3;
        }
        if self.family == Family::Exponent && power != 0 {
            return write!(f, "{amount}e{power}");
        }
        let suffix = DECIMAL.iter().find(|(_, one)| *one == power).map_or("", |(name, _)| *name);
        write!(f, "{amount}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_come_back_in_canonical_form() {
        let cases = [
            ("4000m", "4"),
            ("3.5", "3500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("64Mi", "64Mi"),
            ("110", "110"),
            ("1000", "1k"),
            ("0", "0"),
            ("0.0", "0"),
            ("-2", "-2"),
            ("1e3", "1e3"),
            ("100Ki", "100Ki"),
            ("0.5Gi", "512Mi"),
        ];
        for (text, canonical) in cases {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn nonsense_is_no_quantity() {
        for text in ["", "lots", "1.2.3", "1Zi", "+", "1 Gi"] {
            assert!(Quantity::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn the_same_amount_may_be_written_in_many_ways() {
        for (one, other) in
            [("1", "1000m"), ("1Gi", "1024Mi"), ("1k", "1e3"), ("1.5Gi", "1536Mi"), ("2E", "2e18")]
        {
            assert_eq!(Quantity::parse(one), Quantity::parse(other), "{one} {other}");
        }
        assert_ne!(Quantity::parse("1"), Quantity::parse("2"));
        assert_ne!(Quantity::parse("1G"), Quantity::parse("1Gi"));
    }

    #[test]
    fn what_is_no_quantity_is_recognised() {
        for text in ["", "many", "1Qi", "NaN", "inf", "-", "1 Gi", "e3"] {
            assert_eq!(Quantity::parse(text), None, "{text}");
        }
        for text in ["0", "1.5", ".5Gi", "-3", "+1", "12e6"] {
            assert!(Quantity::parse(text).is_some(), "{text}");
        }
    }

    #[test]
    fn quantities_of_different_suffixes_compare() {
        assert!(Quantity::parse("2").unwrap() > Quantity::parse("1500m").unwrap());
        assert_eq!(Quantity::parse("1Gi").unwrap(), Quantity::parse("1024Mi").unwrap());
    }
}
