//! `#[derive(HotSpec)]` of the driver SDK. Use it as `ostler_driver_sdk::HotSpec`; everything about it
//! is said there.

mod names;
mod spec;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `ostler_driver_sdk::HotSpec`: which fields of a provider spec can be changed on a
/// running instance.
#[proc_macro_derive(HotSpec, attributes(ostler))]
pub fn hot_spec(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    spec::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
