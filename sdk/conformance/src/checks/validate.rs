//! ValidateClass.

use ostler_proto::v1alpha1 as proto;
use proto::operation::Request;
use proto::operation_result::Response;
use proto::{OperationKind, ValidateClassRequest, ValidateClassResponse};

use super::unanswered::{self, AWAY, DENIED, same_or_error};
use super::update::good_spec;
use crate::bench::Bench;
use crate::check::{Gate, checks};
use crate::driver::Driver;
use crate::machine::on_class;
use crate::manifest::ClassManifest;
use crate::outcome::{Outcome, ensure, failed, not_offered};

const MANUAL: &str = "operation.proto, ValidateClassRequest";
const KIND: Gate = Gate::Kind(OperationKind::ValidateClass);

checks! {
    "validate/classifies" => classifies, Capability, Session, [KIND], MANUAL;
        does: "tells good specs from bad ones, and changes that reach running instances from those that do not",
        why: "it is said before a machine is made, to the author of the class";
    "validate/fixed-digest" => fixed_digest, Capability, Process, [KIND, Gate::HotClass, Gate::AltClass], MANUAL;
        does: "gives the same digest of what is fixed for a change that reaches running instances, and another one for a change that does not",
        why: "tools name classes by it: machines would be replaced for a tag, or not be replaced for an image";
    "validate/cloud-away" => when_unanswered::<AWAY>, Capability, Cloud, [KIND, Gate::Probe], unanswered::MANUAL;
        does: "says the same of a spec while the infrastructure does not answer, or answers with an error",
        why: "a violation that is none keeps all machines of the class from being made";
    "validate/bad-secret" => when_unanswered::<DENIED>, Capability, Session, [KIND, Gate::BadSecret], unanswered::MANUAL;
        does: "says the same of a spec when the credentials are refused, or answers with an error",
        why: "a violation that is none keeps all machines of the class from being made";
    "validate/pure" => pure, Capability, Session, [KIND], MANUAL;
        does: "changes nothing when it validates, and always says the same",
        why: "it is asked for specs that are not applied yet";
}

/// What the driver says of `--class`.
pub(crate) async fn review(bench: &Bench) -> Outcome<ValidateClassResponse> {
    let driver = bench.connect().await?;
    validate(&driver, spec(&bench.options().class), None).await
}

async fn validate(
    driver: &Driver<'_>,
    spec: &str,
    old: Option<&ClassManifest>,
) -> Outcome<ValidateClassResponse> {
    let old = old.map(|class| class.content.provider_spec_json.clone());
    let request = ValidateClassRequest {
        provider_spec_json: spec.to_owned(),
        old_provider_spec_json: old.unwrap_or_default(),
        ..Default::default()
    };
    let bench = driver.bench;
    let request = Request::ValidateClass(request);
    let answer = driver.ask(on_class(&bench.class(), bench.cluster_id(), request)).await?;
    let Response::ValidateClass(response) = answer.result()? else {
        return Err(failed("ValidateClassResponse", "another result"));
    };
    Ok(response)
}

fn spec(class: &ClassManifest) -> &str {
    &class.content.provider_spec_json
}

async fn classifies(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let options = bench.options();
    let class = &options.class;
    let good = validate(&driver, spec(class), None).await?;
    bench.step("the spec was that of --class");
    ensure(
        good.violations.is_empty(),
        "no violations in --class",
        format_args!("{:?}", good.violations),
    )?;
    let same = validate(&driver, spec(class), Some(class)).await?;
    ensure(same.change_is_hot_updatable, "no change is hot-updatable", "it is not")?;
    if let Some(bad) = &options.bad_class {
        bench.step("the spec is that of --bad-class");
        let bad = validate(&driver, spec(bad), None).await?;
        let paths = bad.violations.iter().all(|violation| !violation.path.is_empty());
        ensure(
            !bad.violations.is_empty() && paths,
            "violations in --bad-class, each with a path",
            format_args!("{:?}", bad.violations),
        )?;
    }
    if let Some(hot) = &options.hot_class {
        bench.step("the spec changes from --class to --hot-class");
        let hot = validate(&driver, spec(hot), Some(class)).await?;
        ensure(
            hot.change_is_hot_updatable && hot.violations.is_empty(),
            "change_is_hot_updatable",
            format_args!("not, because of {:?}", hot.not_hot_updatable_paths),
        )?;
    }
    if let Some(alt) = &options.alt_class {
        bench.step("the spec changes from --class to --alt-class");
        let alt = validate(&driver, spec(alt), Some(class)).await?;
        ensure(
            !alt.change_is_hot_updatable && !alt.not_hot_updatable_paths.is_empty(),
            "not change_is_hot_updatable, and the paths that stand in the way",
            format_args!("{}, {:?}", alt.change_is_hot_updatable, alt.not_hot_updatable_paths),
        )?;
    }
    Ok(())
}

async fn fixed_digest(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let options = bench.options();
    let mut digests = Vec::new();
    let classes = [Some(&options.class), options.hot_class.as_ref(), options.alt_class.as_ref()];
    for class in classes.into_iter().flatten() {
        digests.push(validate(&driver, spec(class), None).await?.fixed_spec_sha256);
    }
    if digests.iter().all(String::is_empty) {
        return Err(not_offered("the driver says no fixed_spec_sha256"));
    }
    let form = |digest: &String| {
        digest.len() == 64 && digest.chars().all(|it| matches!(it, '0'..='9' | 'a'..='f'))
    };
    ensure(
        digests.iter().all(form),
        "fixed_spec_sha256: 64 lower-case hexadecimal digits each time",
        format_args!("{digests:?}"),
    )?;
    let [good, hot, alt] = digests.as_slice() else { return Ok(()) };
    bench.step("killed the driver");
    bench.harness.forget_process();
    let driver = bench.reconnected().await?;
    let again = validate(&driver, spec(&options.class), None).await?.fixed_spec_sha256;
    ensure(*good == again, format_args!("{good} after another start"), &again)?;
    ensure(good == hot, "the digest of --class for --hot-class", format_args!("{good} and {hot}"))?;
    ensure(good != alt, "another digest for --alt-class", format_args!("{alt} for both"))
}

async fn pure(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let class = &bench.options().class;
    let before = match bench.probe() {
        Ok(probe) if bench.options().parallel == 1 => probe.journal_length().await.ok(),
        _ => None,
    };
    let first = validate(&driver, spec(class), Some(class)).await?;
    for _ in 0..bench.options().idempotent_count.max(2) {
        let next = validate(&driver, spec(class), Some(class)).await?;
        ensure(first == next, format_args!("{first:?} again"), format_args!("{next:?}"))?;
    }
    let listed = driver.list().await?.len();
    ensure(listed == 0, "no instance", format_args!("{listed} in the list"))?;
    if let Some(before) = before {
        let after = bench.probe()?.journal_length().await?;
        ensure(
            before == after,
            "a cloud that does not change while specs are validated",
            format_args!("{} changes", after.saturating_sub(before)),
        )?;
    }
    Ok(())
}

async fn when_unanswered<const DENIED: bool>(bench: &Bench) -> Outcome {
    let driver = bench.connect().await?;
    let request = proto::ValidateClassRequest {
        provider_spec_json: good_spec(bench).to_owned(),
        old_provider_spec_json: good_spec(bench).to_owned(),
        ..Default::default()
    };
    same_or_error(&driver, Request::ValidateClass(request), DENIED).await
}
