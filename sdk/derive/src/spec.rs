//! From a struct to its `HotSpec`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Field, Fields, Result, spanned::Spanned as _};

use crate::names::{Serde, name_of};

/// The mark `#[ostler(…)]` of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// Nothing: fixed when an instance is made.
    Fixed,
    /// Changed on a running instance.
    Hot,
    /// Its own fields say.
    Nested,
}

pub(crate) fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        let message = "HotSpec is for structs: a provider spec is a set of named fields";
        return Err(Error::new(input.ident.span(), message));
    };
    let Fields::Named(fields) = &data.fields else {
        let message = "HotSpec needs named fields: paths are made of them";
        return Err(Error::new(input.ident.span(), message));
    };
    if let Some(attribute) = input.attrs.iter().find(|it| it.path().is_ident("ostler")) {
        let message = "mark fields with #[ostler(hot)] or #[ostler(nested)], not the whole struct";
        return Err(Error::new(attribute.span(), message));
    }
    let all = Serde::of(&input.attrs)?.rename_all;
    let steps: Vec<TokenStream> =
        fields.named.iter().map(|field| step(field, all)).collect::<Result<_>>()?;
    let (name, (generics, types, bounds)) = (&input.ident, input.generics.split_for_impl());
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::ostler_driver_sdk::HotSpec for #name #types #bounds {
            fn fixed_part(
                &self,
            ) -> ::core::result::Result<
                ::ostler_driver_sdk::hot::Value,
                ::ostler_driver_sdk::hot::NotJson,
            > {
                let mut part = ::ostler_driver_sdk::hot::Part::of(self)?;
                #(#steps)*
                ::core::result::Result::Ok(part.into_value())
            }
        }
    })
}

/// The code for one field of the fixed part.
fn step(field: &Field, all: Option<crate::names::Case>) -> Result<TokenStream> {
    let mark = mark(field)?;
    let Some(ident) = field.ident.as_ref().filter(|_| mark != Mark::Fixed) else {
        return Ok(TokenStream::new());
    };
    let serde = Serde::of(&field.attrs)?;
    if serde.flatten || serde.skip {
        let message = "a field that serde flattens or skips has no name in JSON to mark";
        return Err(Error::new(ident.span(), message));
    }
    let name = name_of(ident, &serde, all);
    Ok(if mark == Mark::Hot {
        quote! { part.without(#name); }
    } else {
        quote! {
            part.with(#name, ::ostler_driver_sdk::HotSpec::fixed_part(&self.#ident)?);
        }
    })
}

fn mark(field: &Field) -> Result<Mark> {
    let mut found = Mark::Fixed;
    for attribute in field.attrs.iter().filter(|it| it.path().is_ident("ostler")) {
        attribute.parse_nested_meta(|meta| {
            let mark = if meta.path.is_ident("hot") {
                Mark::Hot
            } else if meta.path.is_ident("nested") {
                Mark::Nested
            } else {
                return Err(meta.error("HotSpec knows `hot` and `nested`"));
            };
            if found != Mark::Fixed {
                return Err(meta.error("a field is marked once, as `hot` or as `nested`"));
            }
            found = mark;
            Ok(())
        })?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn refusal(input: &DeriveInput) -> String {
        expand(input).expect_err("this should be refused").to_string()
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_a_word_on_what_can() {
        let table: [(DeriveInput, &str); 7] = [
            (
                parse_quote!(
                    enum Spec {
                        A,
                        B,
                    }
                ),
                "for structs",
            ),
            (
                parse_quote!(
                    struct Spec(String);
                ),
                "named fields",
            ),
            (
                parse_quote!(
                    #[ostler(hot)]
                    struct Spec {
                        tags: Tags,
                    }
                ),
                "not the whole struct",
            ),
            (
                parse_quote!(
                    struct Spec {
                        #[ostler(hott)]
                        tags: Tags,
                    }
                ),
                "`hot` and `nested`",
            ),
            (
                parse_quote!(
                    struct Spec {
                        #[ostler(hot, nested)]
                        tags: Tags,
                    }
                ),
                "marked once",
            ),
            (
                parse_quote!(
                    struct Spec {
                        #[ostler(hot)]
                        #[serde(flatten)]
                        tags: Tags,
                    }
                ),
                "flattens",
            ),
            (
                parse_quote!(
                    struct Spec {
                        #[ostler(nested)]
                        #[serde(skip)]
                        tags: Tags,
                    }
                ),
                "skips",
            ),
        ];
        for (input, expected) in table {
            let said = refusal(&input);
            assert!(said.contains(expected), "{said:?} lacks {expected:?}");
        }
    }

    #[test]
    fn only_marked_fields_change_what_is_fixed() {
        let input: DeriveInput = parse_quote! {
            #[serde(rename_all = "camelCase")]
            struct Spec { image: String, #[ostler(hot)] vm_tags: Tags, #[ostler(nested)] disk: Disk }
        };
        let text = expand(&input).unwrap().to_string();
        assert!(text.contains(r#"without ("vmTags")"#), "{text}");
        assert!(text.contains(r#"with ("disk""#), "{text}");
        assert!(!text.contains("image"), "{text}");
    }
}
