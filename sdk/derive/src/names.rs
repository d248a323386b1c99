//! The names that serde gives to fields: people write them, and paths consist of them.

use syn::{Attribute, Error, Ident, LitStr, Result, Token, ext::IdentExt as _, parenthesized};

/// What serde attributes say about the name of a field, or of all fields.
#[derive(Debug, Default)]
pub(crate) struct Serde {
    pub(crate) rename: Option<String>,
    pub(crate) rename_all: Option<Case>,
    pub(crate) flatten: bool,
    pub(crate) skip: bool,
}

impl Serde {
    pub(crate) fn of(attributes: &[Attribute]) -> Result<Self> {
        let mut found = Self::default();
        for attribute in attributes.iter().filter(|it| it.path().is_ident("serde")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("rename") {
                    found.rename = serialized(&meta)?.map(|name| name.value());
                } else if meta.path.is_ident("rename_all") {
                    found.rename_all = match serialized(&meta)? {
                        Some(case) => Some(Case::parse(&case)?),
                        None => None,
                    };
                } else if meta.path.is_ident("flatten") {
                    found.flatten = true;
                } else if meta.path.is_ident("skip") || meta.path.is_ident("skip_serializing") {
                    found.skip = true;
                } else if meta.input.peek(Token![=]) {
                    meta.value()?.parse::<syn::Expr>()?;
                } else if meta.input.peek(syn::token::Paren) {
                    let inner;
                    parenthesized!(inner in meta.input);
                    inner.parse::<proc_macro2::TokenStream>()?;
                }
                Ok(())
            })?;
        }
        Ok(found)
    }
}

/// `= "name"`, or the name for serializing of `(serialize = "name", deserialize = "other")`.
fn serialized(meta: &syn::meta::ParseNestedMeta<'_>) -> Result<Option<LitStr>> {
    if meta.input.peek(Token![=]) {
        return meta.value()?.parse().map(Some);
    }
    let mut found = None;
    meta.parse_nested_meta(|inner| {
        let name: LitStr = inner.value()?.parse()?;
        if inner.path.is_ident("serialize") {
            found = Some(name);
        }
        Ok(())
    })?;
    Ok(found)
}

/// The cases of serde's `rename_all`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Case {
    Lower,
    Upper,
    Pascal,
    Camel,
    Snake,
    ScreamingSnake,
    Kebab,
    ScreamingKebab,
}

impl Case {
    fn parse(text: &LitStr) -> Result<Self> {
        Ok(match text.value().as_str() {
            "lowercase" => Self::Lower,
            "UPPERCASE" => Self::Upper,
            "PascalCase" => Self::Pascal,
            "camelCase" => Self::Camel,
            "snake_case" => Self::Snake,
            "SCREAMING_SNAKE_CASE" => Self::ScreamingSnake,
            "kebab-case" => Self::Kebab,
            "SCREAMING-KEBAB-CASE" => Self::ScreamingKebab,
            _ => return Err(Error::new(text.span(), "HotSpec does not know this case of names")),
        })
    }

    /// A field's name, which is in snake case.
    fn apply(self, field: &str) -> String {
        let pascal = || field.split('_').map(capitalized).collect::<String>();
        match self {
            Self::Lower | Self::Snake => field.to_owned(),
            Self::Upper | Self::ScreamingSnake => field.to_ascii_uppercase(),
            Self::Pascal => pascal(),
            Self::Camel => {
                let pascal = pascal();
                let mut letters = pascal.chars();
                let first = letters.next().map(|letter| letter.to_ascii_lowercase());
                first.into_iter().chain(letters).collect()
            }
            Self::Kebab => field.replace('_', "-"),
            Self::ScreamingKebab => field.to_ascii_uppercase().replace('_', "-"),
        }
    }
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// The name of a field in JSON.
pub(crate) fn name_of(field: &Ident, own: &Serde, all: Option<Case>) -> String {
    let plain = field.unraw().to_string();
    own.rename
        .clone()
        .unwrap_or_else(|| all.map_or_else(|| plain.clone(), |case| case.apply(&plain)))
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn name(field: &str, attributes: &[Attribute], all: &[Attribute]) -> String {
        let (own, all) = (Serde::of(attributes).unwrap(), Serde::of(all).unwrap());
        let field = Ident::new(field, proc_macro2::Span::call_site());
        name_of(&field, &own, all.rename_all)
    }

    #[test]
    fn names_are_those_of_serde() {
        let cases = [
            ("camelCase", "machineType"),
            ("PascalCase", "MachineType"),
            ("snake_case", "machine_type"),
            ("kebab-case", "machine-type"),
            ("SCREAMING_SNAKE_CASE", "MACHINE_TYPE"),
            ("SCREAMING-KEBAB-CASE", "MACHINE-TYPE"),
            ("UPPERCASE", "MACHINE_TYPE"),
            ("lowercase", "machine_type"),
        ];
        for (case, expected) in cases {
            let all: Attribute = parse_quote!(#[serde(rename_all = #case, deny_unknown_fields)]);
            assert_eq!(name("machine_type", &[], &[all]), expected);
        }
        assert_eq!(name("machine_type", &[], &[]), "machine_type");
    }

    #[test]
    fn a_name_of_its_own_wins() {
        let all: Attribute = parse_quote!(#[serde(rename_all(serialize = "camelCase"))]);
        let own: Attribute =
            parse_quote!(#[serde(default = "x", rename(serialize = "type", deserialize = "t"))]);
        assert_eq!(name("machine_type", &[own], std::slice::from_ref(&all)), "type");
        assert_eq!(name("machine_type", &[], &[all]), "machineType");
    }

    #[test]
    fn a_case_that_serde_does_not_have_is_refused() {
        let all: Attribute = parse_quote!(#[serde(rename_all = "Camel")]);
        assert!(Serde::of(&[all]).is_err());
    }
}
