//! A number, or a share of a number.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// How many of `all` a value says, with a percentage rounded up or down; `None`: it cannot be read.
pub(crate) fn share(value: &IntOrString, all: usize, up: bool) -> Option<usize> {
    match value {
        IntOrString::Int(number) => usize::try_from(*number).ok(),
        IntOrString::String(text) => match text.strip_suffix('%') {
            Some(percent) => {
                let of = percent.parse::<usize>().ok()?.checked_mul(all)?;
                Some(if up { of.div_ceil(100) } else { of / 100 })
            }
            None => text.parse().ok(),
        },
    }
}
