//! The suite between a driver and its cloud.

mod fault;
mod front;
mod script;
mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;

pub use self::fault::Case;
pub(crate) use self::fault::{ALL, Fault};
use self::front::Front;
use self::script::Script;
pub(crate) use self::script::Seen;
use self::tls::Authority;
use crate::outcome::{Outcome, failed};
use crate::probe::{Probe, quoted};

/// A cloud of the driver.
#[derive(Debug, Clone)]
pub struct CloudAddress {
    /// Where it is: `http://HOST:PORT`, or with https.
    pub uri: Uri,
    /// The environment variable by which the driver is told where; `None`: the suite is its proxy.
    pub variable: Option<String>,
}

/// How the faults of a cloud are caused.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// The clouds that the suite stands before.
    pub clouds: Vec<CloudAddress>,
    /// The environment variables that name the file of the authorities that the driver is to trust, for https.
    pub ca_variables: Vec<String>,
    /// Causes them in a cloud that does not speak HTTP: gets a fault and the number of the request, or `off`, for which
    /// it prints how many requests came since it was called before.
    pub command: Option<String>,
    /// Which of too many cases are tried.
    pub seed: u64,
    /// This one alone.
    pub only: Option<Case>,
    /// Searches show so late what was made; `None`: as the driver says.
    pub list_lag: Option<Duration>,
}

impl Faults {
    /// Whether the suite can cause any.
    pub(crate) fn can_be_caused(&self) -> bool {
        !self.clouds.is_empty() || self.command.is_some()
    }
}

/// All clouds of the driver.
#[derive(Debug)]
pub(crate) struct Cloud {
    script: Arc<Script>,
    fronts: Vec<(Front, CloudAddress)>,
    /// For clouds that speak https, and how the driver is told of it.
    trust: Option<(Authority, Vec<String>)>,
    command: Option<Probe>,
}

impl Cloud {
    pub(crate) async fn open(faults: &Faults, patience: Duration) -> io::Result<Self> {
        let script = Arc::new(Script::default());
        let mut fronts = Vec::new();
        let speaks_https = faults.clouds.iter().any(|it| is_https(&it.uri));
        let authority = if speaks_https { Some(Authority::new()?) } else { None };
        for cloud in &faults.clouds {
            let signs = authority.as_ref().filter(|_| is_https(&cloud.uri));
            let tls = signs.map(|it| it.of(&cloud.uri)).transpose()?;
            let is_proxy = cloud.variable.is_none();
            let front = Front::open(&cloud.uri, tls, is_proxy, Arc::clone(&script)).await?;
            fronts.push((front, cloud.clone()));
        }
        let trust = authority.map(|it| (it, faults.ca_variables.clone()));
        let command =
            faults.command.clone().map(|it| Probe::new("--cloud-fault-cmd", it, patience));
        Ok(Self { script, fronts, trust, command })
    }

    /// How the driver is told to come here.
    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let told = |(front, cloud): &(Front, CloudAddress)| {
            let here = format!("http://{}", front.address);
            match &cloud.variable {
                Some(name) => {
                    let scheme = cloud.uri.scheme_str().unwrap_or_default();
                    vec![(
                        name.clone(),
                        format!("{scheme}://{}{}", front.address, path(&cloud.uri)),
                    )]
                }
                None => ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"]
                    .map(|name| (name.to_owned(), here.clone()))
                    .into(),
            }
        };
        let trusted = self.trust.iter().flat_map(|(authority, names)| {
            let file = authority.file().display().to_string();
            names.iter().map(move |name| (name.clone(), file.clone()))
        });
        self.fronts.iter().flat_map(told).chain(trusted).collect()
    }

    /// Whether requests to the cloud come here.
    pub(crate) fn is_between(&self) -> bool {
        !self.fronts.is_empty()
    }

    /// Takes the cloud away after so many changes more; `None` brings it back.
    pub(crate) fn goes_away(&self, after: Option<u32>) {
        self.script.goes_away(after);
    }

    /// The next requests are those of one operation.
    pub(crate) async fn begin(&self, plan: Option<(usize, Fault)>) -> Outcome {
        self.script.begin(plan);
        let Some(command) = &self.command else { return Ok(()) };
        let words = match plan {
            Some((at, fault)) => format!("{} {at}", quoted(&fault.to_string())),
            None => "off".to_owned(),
        };
        command.run(&words).await.map(drop)
    }

    /// Searches that come before the fault show the same for this time.
    pub(crate) fn stale(&self, lag: Duration) {
        self.script.stale(lag);
    }

    /// The operation is over.
    pub(crate) async fn end(&self) -> Outcome<Seen> {
        let seen = self.script.end();
        let Some(command) = &self.command else { return Ok(seen) };
        let printed = command.run("off").await?;
        let count: usize = printed.trim().parse().map_err(|_| {
            failed("--cloud-fault-cmd off: the number of requests since it was called", printed)
        })?;
        let requests = (1..=count.min(1000)).map(|number| format!("request {number}"));
        Ok(Seen { requests: requests.collect(), hit: None })
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

fn path(uri: &Uri) -> &str {
    uri.path_and_query().map_or("", |it| it.as_str()).trim_end_matches('/')
}
