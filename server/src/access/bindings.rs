//! Which principals may serve which providers: the typed form of the access file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use nix::unistd::User;
use serde::Deserialize;

use super::tokens::DriverToken;

/// Longest list of bindings. Far above any use, so a wrong file is noticed.
const BINDINGS: usize = 10_000;

/// A caller recognised by something other than a known token. The value displays as its principal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    /// `system:serviceaccount:NAMESPACE:NAME`.
    ServiceAccount(String),
    /// The identity of a client certificate.
    Certificate(String),
    /// The user at the other end of a unix socket.
    UnixUser(u32),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ServiceAccount(name) => f.write_str(name),
            Self::Certificate(identity) => write!(f, "certificate:{identity}"),
            Self::UnixUser(uid) => write!(f, "unix:uid:{uid}"),
        }
    }
}

impl Who {
    /// An example of a binding.
    pub(super) fn example(&self) -> String {
        let whom = match self {
            Self::ServiceAccount(name) => {
                let name = name.trim_start_matches("system:serviceaccount:").replacen(':', "/", 1);
                format!("serviceAccount: {name}")
            }
            Self::Certificate(identity) => format!("certificate: {identity:?}"),
            Self::UnixUser(uid) => format!("unixUser: {uid}"),
        };
        format!("{{ {whom}, providers: [NAME] }}")
    }
}

/// The access file, as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    bindings: Vec<Binding>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Binding {
    service_account: Option<String>,
    certificate: Option<String>,
    unix_user: Option<UserName>,
    token_file: Option<PathBuf>,
    providers: Vec<String>,
}

/// `1000` or `ostler`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UserName {
    Uid(u32),
    Name(String),
}

/// Checked bindings.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    providers: BTreeMap<Who, BTreeSet<String>>,
    tokens: Vec<DriverToken>,
}

impl Bindings {
    /// Reads the text of an access file.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let document: Document = serde_saphyr::from_str(text)?;
        if document.bindings.len() > BINDINGS {
            bail!("bindings has {} entries, the limit is {BINDINGS}", document.bindings.len());
        }
        let mut bindings = Self::default();
        for (index, binding) in document.bindings.into_iter().enumerate() {
            bindings.add(binding).with_context(|| format!("bindings[{index}]"))?;
        }
        Ok(bindings)
    }

    /// The providers allowed for `who`.
    pub(super) fn of(&self, who: &Who) -> Option<&BTreeSet<String>> {
        self.providers.get(who)
    }

    /// The token files.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &DriverToken> {
        self.tokens.iter()
    }

    /// Whether any ServiceAccount is bound.
    pub(super) fn has_accounts(&self) -> bool {
        self.providers.keys().any(|who| matches!(who, Who::ServiceAccount(_)))
    }

    fn add(&mut self, binding: Binding) -> anyhow::Result<()> {
        let Binding { service_account, certificate, unix_user, token_file, providers } = binding;
        let providers = checked(providers)?;
        let who = match (service_account, certificate, unix_user, token_file) {
            (Some(account), None, None, None) => Who::ServiceAccount(account_name(&account)?),
            (None, Some(identity), None, None) if !identity.is_empty() => {
                Who::Certificate(identity)
            }
            (None, None, Some(user), None) => Who::UnixUser(uid(user)?),
            (None, None, None, Some(file)) => {
                let name = format!("token:{}", file.display());
                self.tokens.push(DriverToken { name, providers: Some(providers), file });
                return Ok(());
            }
            _ => bail!(
                "must have exactly one of serviceAccount, certificate, unixUser and tokenFile"
            ),
        };
        self.providers.entry(who).or_default().extend(providers);
        Ok(())
    }
}

fn checked(providers: Vec<String>) -> anyhow::Result<BTreeSet<String>> {
    if providers.is_empty() {
        bail!("providers is empty; name at least one, e.g. [aws.example.com]");
    }
    let is_label = |label: &str| {
        !label.is_empty()
            && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    for provider in &providers {
        if provider.len() > 63 || !provider.split('.').all(is_label) {
            bail!("providers: {provider:?} is no provider's name, e.g. aws.example.com");
        }
    }
    Ok(providers.into_iter().collect())
}

fn account_name(text: &str) -> anyhow::Result<String> {
    match text.split_once('/') {
        Some((namespace, name))
            if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
        {
            Ok(format!("system:serviceaccount:{namespace}:{name}"))
        }
        _ => bail!("serviceAccount: {text:?} is not NAMESPACE/NAME, e.g. ostler/driver-aws"),
    }
}

fn uid(user: UserName) -> anyhow::Result<u32> {
    let name = match user {
        UserName::Uid(uid) => return Ok(uid),
        UserName::Name(name) => name,
    };
    if let Ok(uid) = name.parse() {
        return Ok(uid);
    }
    let found = User::from_name(&name).context("unixUser: the users of this host are not known")?;
    let found = found.ok_or_else(|| anyhow!("unixUser: this host knows no user {name:?}"))?;
    Ok(found.uid.as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "
bindings:
- serviceAccount: ostler/driver-aws
  providers: [aws.example.com]
- certificate: spiffe://example.com/driver/aws
  providers: [aws.example.com, gcp.example.com]
- unixUser: 1000
  providers: [fake.ostler.dev]
- unixUser: root
  providers: [fake.ostler.dev]
- unixUser: 1000
  providers: [other.ostler.dev]
- tokenFile: /run/token
  providers: [fake.ostler.dev]
";

    #[test]
    fn every_form_of_principal_can_be_bound() {
        let bindings = Bindings::parse(ALL).unwrap();
        let account = Who::ServiceAccount("system:serviceaccount:ostler:driver-aws".to_owned());
        assert!(bindings.of(&account).unwrap().contains("aws.example.com"));
        let certificate = Who::Certificate("spiffe://example.com/driver/aws".to_owned());
        assert_eq!(bindings.of(&certificate).unwrap().len(), 2);
        assert_eq!(bindings.of(&Who::UnixUser(1000)).unwrap().len(), 2, "two entries add up");
        assert!(bindings.of(&Who::UnixUser(0)).is_some());
        assert!(bindings.of(&Who::UnixUser(1)).is_none());
        assert_eq!(bindings.tokens().count(), 1);
        assert!(bindings.has_accounts());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let cases = [
            (
                "bindings:\n- unixUser: 1\n  providers: [a]\n- unixUser: 1\n  provider: [a]",
                &["provider", "line 5"][..],
            ),
            ("bindings:\n- providers: [a]", &["bindings[0]", "exactly one"]),
            ("bindings:\n- unixUser: 1\n  certificate: a\n  providers: [a]", &["exactly one"]),
            ("bindings:\n- unixUser: 1\n  providers: []", &["bindings[0]", "providers is empty"]),
            ("bindings:\n- unixUser: 1\n  providers: [AWS]", &["AWS", "aws.example.com"]),
            ("bindings:\n- serviceAccount: aws\n  providers: [a]", &["NAMESPACE/NAME"]),
            ("bindings:\n- unixUser: nobody-at-all\n  providers: [a]", &["nobody-at-all"]),
            ("access: []", &["access"]),
            ("bindings: [", &["line"]),
        ];
        for (text, parts) in cases {
            let error = format!("{:#}", Bindings::parse(text).unwrap_err());
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn the_example_of_a_binding_is_one() {
        for who in [
            Who::ServiceAccount("system:serviceaccount:ns:name".to_owned()),
            Who::Certificate("spiffe://td/a".to_owned()),
            Who::UnixUser(7),
        ] {
            let text = format!("bindings: [{}]", who.example().replace("NAME", "a"));
            assert!(Bindings::parse(&text).unwrap().of(&who).is_some(), "{text}");
        }
    }
}
