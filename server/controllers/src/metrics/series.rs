//! Common parts of the metrics that are computed from a cache at each scrape.

use std::fmt;

use kube::Resource;
use ostler_api::machine_set::MachineSummary;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

pub(crate) type Labels = Vec<(&'static str, String)>;

/// The labels of a series, and its value.
pub(crate) type Series = (Labels, i64);

pub(crate) fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A gauge without labels.
pub(crate) fn total(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: usize,
) -> fmt::Result {
    let to = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    ConstGauge::new(number(count)).encode(to)
}

/// Gauges of one name.
pub(crate) fn gauges(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = Series>,
) -> fmt::Result {
    let mut to = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        ConstGauge::new(value).encode(to.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The labels that every series of an object has.
pub(crate) fn name_of(object: &impl Resource) -> Labels {
    let meta = object.meta();
    vec![
        ("name", meta.name.clone().unwrap_or_default()),
        ("namespace", meta.namespace.clone().unwrap_or_default()),
    ]
}

/// An object's name and creation time, with more labels.
pub(crate) fn info<const N: usize>(
    object: &impl Resource,
    more: [(&'static str, String); N],
) -> Series {
    let created = object.meta().creation_timestamp.as_ref().map(|time| time.0.as_second());
    let mut labels = name_of(object);
    labels.push(("createdAt", created.unwrap_or_default().to_string()));
    labels.extend(more);
    (labels, 1)
}

/// A condition of an object: 1 True, 0 False, 2 Unknown.
pub(crate) fn condition(object: &impl Resource, type_: String, status: &str) -> Series {
    let mut labels = name_of(object);
    labels.push(("condition", type_));
    let value = match status {
        "True" => 1,
        "False" => 0,
        _ => 2,
    };
    (labels, value)
}

/// A Machine of a set or a deployment whose last operation failed.
pub(crate) fn failed(of: &impl Resource, machine: &MachineSummary) -> Series {
    let last = machine.last_operation.as_ref();
    let state = last.and_then(|last| last.state.as_ref()).map(ToString::to_string);
    let type_ = last.and_then(|last| last.type_.as_ref()).map(ToString::to_string);
    let mut labels = name_of(of);
    labels.extend([
        ("failed_machine_name", machine.name.clone().unwrap_or_default()),
        ("failed_machine_provider_id", machine.provider_id.clone().unwrap_or_default()),
        ("failed_machine_owner_ref", machine.owner_ref.clone().unwrap_or_default()),
        ("failed_machine_last_operation_state", state.unwrap_or_default()),
        ("failed_machine_last_operation_machine_operation_type", type_.unwrap_or_default()),
    ]);
    (labels, 1)
}
