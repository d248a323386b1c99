//! Kubernetes quantities, compared by value: an API server may write `1000m` back as `1`.

/// The value of a quantity; `None`: it is none.
fn value(text: &str) -> Option<f64> {
    const SUFFIXES: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let split =
        SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = split.unwrap_or((text, 1.0));
    let plain = |letter: char| letter.is_ascii_digit() || ".+-eE".contains(letter);
    if !number.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        || !number.chars().all(plain)
    {
        return None;
    }
    number.parse::<f64>().ok().map(|number| number * factor).filter(|value| value.is_finite())
}

/// Whether the text is a quantity.
pub(crate) fn is_quantity(text: &str) -> bool {
    value(text).is_some()
}

/// Whether two quantities are the same amount.
pub(crate) fn same(one: &str, other: &str) -> bool {
    match (value(one), value(other)) {
        (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs().max(other.abs()),
        (None, _) | (_, None) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_amount_may_be_written_in_many_ways() {
        for (one, other) in
            [("1", "1000m"), ("1Gi", "1024Mi"), ("1k", "1e3"), ("1.5Gi", "1536Mi"), ("2E", "2e18")]
        {
            assert!(same(one, other), "{one} {other}");
        }
        assert!(!same("1", "2"));
        assert!(!same("1G", "1Gi"));
    }

    #[test]
    fn what_is_no_quantity_is_recognised() {
        for text in ["", "many", "1Qi", "NaN", "inf", "-", "1 Gi", "e3"] {
            assert!(!is_quantity(text), "{text}");
        }
        for text in ["0", "1.5", ".5Gi", "-3", "+1", "12e6"] {
            assert!(is_quantity(text), "{text}");
        }
    }
}
