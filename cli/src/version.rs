//! `ostler version`: what runs here, in the core, and which drivers are connected.

use kube::Client;
use ostler_proto::v1alpha1::ListSessionsResponse;
use ostler_proto::v1alpha1::driver_service_server::SERVICE_NAME;
use serde_json::{Value, json};

use crate::cluster::{self, Place};
use crate::drivers::AdminArgs;
use crate::output::{Output, merged};
use crate::program::VERSION;
use crate::terminal;

/// Of this program.
const PACKAGE: &str = env!("CARGO_PKG_VERSION");
/// The commit of the build, from the environment of the build.
const COMMIT: Option<&str> = option_env!("OSTLER_COMMIT");

/// The package of the contract with drivers.
fn contract() -> &'static str {
    SERVICE_NAME.rsplit_once('.').map_or(SERVICE_NAME, |(package, _)| package)
}

/// Whom it asks.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ostler version             this program, the core and its drivers
  ostler version --client    this program only
  ostler version -o json     for scripts

The core and its drivers are asked at the admin listener, as for `ostler drivers`.")]
pub(crate) struct Args {
    /// Do not ask the API server and the core
    #[arg(long)]
    client: bool,
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// Prints the versions. Who cannot be asked is told with the reason, and is no error.
///
/// # Errors
/// They cannot be printed.
pub(crate) async fn run(args: Args) -> anyhow::Result<()> {
    let Args { client, place, admin, output } = args;
    let mut all = Versions::default();
    if !client {
        let home = place.home();
        all.api = Some(api(place).await.map_err(|error| format!("{error:#}")));
        all.core = Some(admin.sessions(home).await.map_err(|error| format!("{error:#}")));
    }
    output.print(&all.page(), &all.data())
}

async fn api(place: Place) -> anyhow::Result<String> {
    cluster::within(place, async |client: Client, _| {
        Ok(client.apiserver_version().await?.git_version)
    })
    .await
}

/// The answers of the API and the core, or their errors; `None`: not asked.
#[derive(Debug, Default)]
struct Versions {
    api: Option<Result<String, String>>,
    core: Option<Result<ListSessionsResponse, String>>,
}

impl Versions {
    fn page(&self) -> String {
        let mut lines = vec![format!("Client:      ostler {}", *VERSION)];
        match &self.api {
            Some(Ok(version)) => lines.push(format!("API server:  {version}")),
            Some(Err(why)) => lines.push(format!("API server:  not known: {why}")),
            None => {}
        }
        match &self.core {
            Some(Ok(answer)) => {
                let core = answer.core.as_ref();
                let core = core.map(|it| format!("{} {}", it.instance, it.version));
                lines.push(format!("Core:        {}", core.unwrap_or_default()));
                for (at, one) in answer.sessions.iter().enumerate() {
                    let name = if at == 0 { "Drivers:" } else { "" };
                    let driver = format!("{} {}", one.driver_name, one.driver_version);
                    lines.push(format!("{name:<13}{}: {}", one.provider, driver.trim()));
                }
            }
            Some(Err(why)) => lines.push(format!("Core:        not known: {why}")),
            None => {}
        }
        lines.iter().map(|line| terminal::line(line)).collect::<Vec<_>>().join("\n")
    }

    fn data(&self) -> Value {
        let client = json!({ "version": PACKAGE, "commit": COMMIT, "contract": contract() });
        let api = match &self.api {
            Some(Ok(version)) => json!({ "apiServer": { "version": version } }),
            Some(Err(why)) => json!({ "apiServer": { "error": why } }),
            None => json!({}),
        };
        let core = match &self.core {
            Some(Ok(answer)) => {
                let core = answer.core.clone().unwrap_or_default();
                let driver = |it: &ostler_proto::v1alpha1::SessionInfo| {
                    json!({
                        "provider": it.provider, "name": it.driver_name, "version": it.driver_version
                    })
                };
                json!({
                    "core": { "instance": core.instance, "version": core.version },
                    "drivers": answer.sessions.iter().map(driver).collect::<Vec<_>>(),
                })
            }
            Some(Err(why)) => json!({ "core": { "error": why } }),
            None => json!({}),
        };
        merged(merged(json!({ "client": client }), api), core)
    }
}

#[cfg(test)]
mod tests {
    use ostler_proto::v1alpha1::{CoreState, SessionInfo};

    use super::*;

    #[test]
    fn who_cannot_be_asked_is_told_with_the_reason() {
        let session = SessionInfo {
            provider: "fake.ostler.dev".to_owned(),
            driver_name: "fake".to_owned(),
            driver_version: "0.1.0".to_owned(),
            ..SessionInfo::default()
        };
        let core =
            CoreState { instance: "up_1".into(), version: "0.1.0".into(), ..CoreState::default() };
        let answer = ListSessionsResponse { core: Some(core), sessions: vec![session] };
        let all = Versions { api: Some(Err("no cluster".to_owned())), core: Some(Ok(answer)) };
        let page = all.page();
        let (client, others) = page.split_once('\n').unwrap();
        assert!(client.starts_with("Client:      ostler 0.1.0 (commit "), "{client}");
        assert!(client.ends_with(", contract ostler.driver.v1alpha1)"), "{client}");
        let expected = "\
API server:  not known: no cluster
Core:        up_1 0.1.0
Drivers:     fake.ostler.dev: fake 0.1.0";
        assert_eq!(others, expected);
        assert_eq!(all.data()["drivers"][0]["provider"], "fake.ostler.dev");
        assert!(VERSION.ends_with(&format!(", contract {})", contract())), "{}", *VERSION);
        assert_eq!(Versions::default().page().lines().count(), 1);
    }
}
