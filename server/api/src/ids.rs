//! Texts that name something, a type for each, so that none is taken for another.
//!
//! In the API and on the wire they are plain strings.

/// Defines a type around a text. It reads, prints, sorts and hashes as the text does, so a map with such keys is
/// searched with a `&str` too.
macro_rules! text_type {
    ($($(#[$meta:meta])* pub struct $name:ident;)+) => {$(
        $(#[$meta])*
        #[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Whether the text is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.as_str().to_owned()
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                self.as_str()
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, text: &str) -> bool {
                self.as_str() == text
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, text: &&str) -> bool {
                self.as_str() == *text
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(self.as_str(), f)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from).map(Self::from)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    )+};
}

text_type! {
    /// UUID of an operation, new for every decision to dispatch.
    pub struct OperationId;

    /// UID of an object of Kubernetes.
    pub struct Uid;

    /// The infrastructure that a driver serves: `MachineClass.provider`, e.g. `fake.ostler.dev`.
    pub struct ProviderName;

    /// The infrastructure's name of an instance, equal to `Node.spec.providerID`; empty if not known.
    pub struct ProviderId;

    /// State of a class or of a secret. Compared for equality only; empty: no particular one.
    pub struct Revision;

    /// Digest of a provider spec.
    pub struct SpecDigest;
}

/// The comparison of a Node's provider id with an instance's: as the infrastructure compares its ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProviderIdComparison {
    /// To the letter.
    #[default]
    Exact,
    /// Without regard to ASCII capitals.
    CaseInsensitive,
    /// By scheme and last part.
    LastSegment,
}

/// Scheme and last part of a provider id.
fn ends(id: &str) -> Option<(&str, &str)> {
    let (scheme, path) = id.split_once("://")?;
    let (_, last) = path.rsplit_once('/')?;
    (!last.is_empty()).then_some((scheme, last))
}

/// The parts of a provider id without its scheme, in small letters.
fn path(id: &str) -> Vec<String> {
    let path = id.split_once(":/").map_or(id, |(_, path)| path);
    path.split('/').filter(|part| !part.is_empty()).map(str::to_lowercase).collect()
}

impl ProviderId {
    /// Whether a Node with `id` as `spec.providerID` runs on this instance, whatever the Node's name.
    pub fn equals(&self, id: &str, by: ProviderIdComparison) -> bool {
        *self == *id
            || match by {
                ProviderIdComparison::Exact => false,
                ProviderIdComparison::CaseInsensitive => self.as_str().eq_ignore_ascii_case(id),
                ProviderIdComparison::LastSegment => {
                    ends(self.as_str()).is_some_and(|own| ends(id) == Some(own))
                }
            }
    }

    /// Whether a Node whose `spec.providerID` is `id` may run on this instance, if its name fits: the ids are equal, or their
    /// schemes and last parts are. Drivers of machine-controller-manager write the region where the cloud's controller writes
    /// the zone (`aws:///eu-west-1/i-1`, `aws:///eu-west-1a/i-1`), or the project after three slashes and not two; upstream
    /// links by name alone, and Gardener's autoscaler compares last parts.
    pub fn is_of_node(&self, id: &str, by: ProviderIdComparison) -> bool {
        let same = |(scheme, last): (&str, &str), (other, of_other): (&str, &str)| match by {
            ProviderIdComparison::CaseInsensitive => {
                scheme.eq_ignore_ascii_case(other) && last.eq_ignore_ascii_case(of_other)
            }
            ProviderIdComparison::Exact | ProviderIdComparison::LastSegment => {
                (scheme, last) == (other, of_other)
            }
        };
        self.equals(id, by)
            || ends(self.as_str()).zip(ends(id)).is_some_and(|(own, other)| same(own, other))
    }

    /// Whether some comparison of a driver makes `id` equal to this id.
    pub fn may_equal(&self, id: &str) -> bool {
        self.equals(id, ProviderIdComparison::CaseInsensitive)
            || self.equals(id, ProviderIdComparison::LastSegment)
    }

    /// Whether `id` may be this id in another spelling: both differ in nothing but capitals, slashes, the scheme, and a
    /// prefix before one path. For people alone: a spelling proves nothing.
    pub fn is_spelled(&self, id: &str) -> bool {
        let (own, other) = (path(self.as_str()), path(id));
        let one_ends_the_other = own.ends_with(&other) || other.ends_with(&own);
        !own.is_empty()
            && !other.is_empty()
            && one_ends_the_other
            && !self.is_of_node(id, ProviderIdComparison::Exact)
    }

    /// The part by which ids of other spellings are found.
    pub fn ending(id: &str) -> Option<String> {
        path(id).pop()
    }
}
